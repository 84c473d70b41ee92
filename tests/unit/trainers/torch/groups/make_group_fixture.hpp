#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tests/support/memory_link.hpp"
#include "tests/support/torch_ranks.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/groups/make_group.hpp"

namespace troupe::internal::test {

/// The control plane of a world of threads.
class make_group_test : public testing::Test {
protected:
  void TearDown() override {
    EXPECT_TRUE(group_reaper::drain(std::chrono::seconds{20}));
  }

  rank_facts facts(int rank, int size, bool with_segment = true) {
    rank_facts x;
    x.rank = x.local_rank = rank;
    x.world_size = x.local_world_size = size;
    x.in_process = true;
    x.segment = with_segment ? segment_.descriptor() : -1;
    return x;
  }

  /// Runs *body* with the context and the plane of every rank of two.
  std::vector<std::string>
  on_ranks(backend kind, bool with_segment,
           const std::function<void(train_context&, torch_data_plane&,
                                    test::memory_link&)>& body) {
    return test::run_threads(2, [&](int rank) {
      auto link = std::make_shared<test::memory_link>(store_);
      train_context context{facts(rank, 2, with_segment), link, std::nullopt};
      {
        auto plane = make_group(
          context, {.backend = kind, .timeout = std::chrono::seconds{60}});
        check(link->has_abort(), "no listener for aborts");
        rank_access{context}.data_plane() = plane;
        body(context, *plane, *link);
        rank_access{context}.data_plane().reset();
        check(link->activity()->left_group.load() == 0, "it left too early");
      }
      check(link->activity()->left_group.load() == 1, "no one sees it leave");
      check(!link->has_abort(), "a listener for aborts is left");
    });
  }

  test::memory_store store_;
  shared_segment segment_ = shared_segment::create(2).value();
};

/// The group talks over the backend *name*, and its sums are right.
inline void expect_sum(torch_data_plane& plane, const std::string& name) {
  check(plane.device.is_cpu(), "the device is not a CPU");
  auto member = plane.group->getBackend(at::kCPU);
  check(member->getBackendName() == name, member->getBackendName());
  std::vector<at::Tensor> x{at::full({1000}, plane.group->getRank() + 1.0)};
  plane.group->allreduce(x)->wait();
  check(x[0].eq(3).all().item<bool>(), "the sum is wrong");
  plane.group->barrier()->wait();
}

/// Why a rank with *facts* gets no group.
inline error refusal(test::memory_store& store, rank_facts facts,
                     const torch_config& config) {
  auto link = std::make_shared<test::memory_link>(store);
  train_context context{std::move(facts), link, std::nullopt};
  try {
    make_group(context, config);
  } catch (const train_error& e) {
    return e.reason();
  }
  return {};
}

/// What `run_threads` returns for two ranks.
inline const std::vector<std::string> no_failures(2);

} // namespace troupe::internal::test
