#include "troupe/trainers/torch/groups/c10d_groups.hpp"

#include <atomic>
#include <future>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/support/memory_link.hpp"
#include "tests/support/no_new_threads.hpp"
#include "troupe/trainers/torch/data_parallel/distributed_data_parallel.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

/// What NCCL does, and what was asked of it.
struct nccl_calls {
  std::function<void()> shut_down = [] {};
  std::function<void()> end_at_once = [] {};
  std::atomic<c10d::ErrorType> state = c10d::ErrorType::SUCCESS;
  std::atomic<int> shutdowns = 0;
  std::atomic<int> aborts = 0;
  std::promise<void> destroyed;
};

/// NCCL, as far as reports and the end of a loop ask it.
struct played_nccl : c10d::Backend {
  explicit played_nccl(std::shared_ptr<nccl_calls> x)
    : Backend(1, 2), calls(std::move(x)) {}

  ~played_nccl() override { calls->destroyed.set_value(); }

  c10d::ErrorType getError() override { return calls->state; }

  void shutdown() override {
    ++calls->shutdowns;
    calls->shut_down();
  }

  void abort() override {
    ++calls->aborts;
    calls->end_at_once();
  }

  const std::shared_ptr<nccl_calls> calls;
};

class nccl_group_test : public testing::Test {
protected:
  void TearDown() override { EXPECT_TRUE(group_reaper::drain(20s)); }

  static rank_facts facts(int rank, int size) {
    rank_facts x;
    x.rank = x.local_rank = rank;
    x.world_size = x.local_world_size = size;
    x.in_process = true;
    return x;
  }

  c10::intrusive_ptr<played_nccl> group() const {
    return c10::make_intrusive<played_nccl>(calls_);
  }

  test::memory_store store_;
  std::shared_ptr<nccl_calls> calls_ = std::make_shared<nccl_calls>();
};

// NCCL's own start listens to its peers only.
TEST_F(nccl_group_test, an_abort_of_the_attempt_ends_a_start) {
  auto link = std::make_shared<test::memory_link>(store_);
  train_context context{facts(0, 2), link, std::nullopt};
  std::promise<void> peer;
  auto begun = std::make_shared<std::promise<void>>();
  auto start = [come = peer.get_future().share(), begun] {
    begun->set_value();
    come.wait();
    return c10::intrusive_ptr<c10d::Backend>{};
  };
  auto control_plane = std::async(std::launch::async, [&] {
    begun->get_future().wait();
    link->abort({ec::rank_failed, "rank 1: it crashed"});
  });
  try {
    start_group(context, std::chrono::hours{1}, start);
    ADD_FAILURE() << "it started without its peer";
  } catch (const train_error& e) {
    EXPECT_STREQ(e.what(), "rank 1: it crashed");
  }
  peer.set_value();
  control_plane.get();
}

TEST_F(nccl_group_test, a_start_without_an_end_is_left_behind) {
  train_context context{
    facts(1, 2), std::make_shared<test::memory_link>(store_), std::nullopt};
  std::promise<void> peer;
  auto start = [come = peer.get_future().share()] {
    come.wait();
    return c10::intrusive_ptr<c10d::Backend>{};
  };
  try {
    start_group(context, 10ms, start);
    ADD_FAILURE() << "it started without its peer";
  } catch (const train_error& e) {
    EXPECT_EQ(e.reason().code, ec::timeout);
    EXPECT_STREQ(e.what(), "rank 1: the group did not start within 10 ms");
  }
  peer.set_value();
}

TEST_F(nccl_group_test, a_start_without_a_thread_is_refused) {
  train_context context{
    facts(1, 2), std::make_shared<test::memory_link>(store_), std::nullopt};
  test::no_new_threads none;
  try {
    start_group(context, 1h, [this] { return group(); });
    ADD_FAILURE() << "it started without a thread";
  } catch (const train_error& e) {
    EXPECT_EQ(e.reason().code, ec::spawn);
    EXPECT_TRUE(
      std::string{e.what()}.starts_with("rank 1: the group did not start: "))
      << e.what();
  }
}

TEST_F(nccl_group_test, what_is_computed_after_an_abort_of_nccl_is_not_stored) {
  train_context context{
    facts(1, 2), std::make_shared<test::memory_link>(store_), std::nullopt};
  auto member = group();
  auto guard = refuse_reports_after_abort(context, member, at::kCPU);
  context.report({{"loss", 0.5}});
  calls_->state = c10d::ErrorType::COMM_ERROR;
  for (auto store :
       std::vector<std::function<void()>>{[&] {
                                            context.report({{"loss", 0.4}});
                                          },
                                          [&] { context.new_checkpoint(); }})
    try {
      store();
      ADD_FAILURE() << "it was not refused";
    } catch (const train_error& e) {
      EXPECT_EQ(e.reason().code, ec::rank_failed);
      EXPECT_TRUE(
        std::string{e.what()}.starts_with("rank 1: NCCL aborted a collective"))
        << e.what();
    }
  guard.reset(); // The group is gone, and its errors with it.
  context.report({{"loss", 0.4}});
}

TEST_F(nccl_group_test, ends_in_order_and_without_an_abort) {
  close_nccl_group(group(), at::kCPU, 1h);
  calls_->destroyed.get_future().wait();
  EXPECT_EQ(calls_->shutdowns, 1);
  EXPECT_EQ(calls_->aborts, 0);
}

// A peer died, and what waits for it on the GPU does not end.
TEST_F(nccl_group_test, is_aborted_if_it_does_not_end_in_time) {
  std::promise<void> aborted;
  calls_->shut_down = [ended = aborted.get_future().share()] { ended.wait(); };
  calls_->end_at_once = [&aborted] { aborted.set_value(); };
  close_nccl_group(group(), at::kCPU, 10ms);
  calls_->destroyed.get_future().wait();
  EXPECT_EQ(calls_->shutdowns, 1);
  EXPECT_EQ(calls_->aborts, 1);
}

// Peers keep it open until they learn of the exception, which is later.
TEST_F(nccl_group_test, does_not_wait_long_for_peers_if_the_loop_throws) {
  struct asker {
    std::chrono::milliseconds* limit;
    ~asker() { *limit = nccl_drain_limit(); }
  };
  std::chrono::milliseconds thrown{0}, returned{0};
  { asker at_return{&returned}; }
  try {
    asker at_throw{&thrown};
    throw std::runtime_error{"bad data"};
  } catch (const std::runtime_error&) {
    EXPECT_EQ(nccl_drain_limit(), 30s) << "it was caught in the loop";
  }
  EXPECT_EQ(returned, 30s);
  EXPECT_EQ(thrown, 1s);
}

TEST_F(nccl_group_test, an_end_that_throws_ends_the_group_alone) {
  calls_->shut_down = [] { throw std::runtime_error{"an error of CUDA"}; };
  close_nccl_group(group(), at::kCPU, 1h);
  calls_->destroyed.get_future().wait();
  EXPECT_EQ(calls_->aborts, 0);
}

TEST_F(nccl_group_test, an_abort_that_throws_ends_the_group_alone) {
  calls_->end_at_once = [] { throw std::runtime_error{"an error of CUDA"}; };
  abort_nccl_group(group());
  calls_->destroyed.get_future().wait(); // After what was thrown.
  EXPECT_EQ(calls_->aborts, 1);
}

TEST_F(nccl_group_test, is_left_behind_if_there_is_no_thread_to_end_it) {
  auto member = group();
  {
    test::no_new_threads none;
    abort_nccl_group(member);
    EXPECT_EQ(member.use_count(), 1);
    close_nccl_group(member, at::kCPU, 1h);
  }
  EXPECT_EQ(calls_->shutdowns, 0);
  EXPECT_EQ(calls_->aborts, 0);
  EXPECT_EQ(group_reaper::pending(), 0);
  ASSERT_EQ(member.use_count(), 2) << "it was destroyed by the caller";
  c10::intrusive_ptr<played_nccl>::reclaim(member.get()).reset();
}

/// A group that notes the device of its first collective.
struct noting_group : c10d::ProcessGroup {
  using ProcessGroup::ProcessGroup;

  c10::intrusive_ptr<c10d::Work>
  allreduce(std::vector<at::Tensor>& tensors,
            const c10d::AllreduceOptions&) override {
    first = tensors.at(0).device();
    throw std::runtime_error{"noted"};
  }

  std::optional<at::Device> first;
};

// NCCL carries no tensors of the CPU. A device without memory plays the GPU.
TEST_F(nccl_group_test, ranks_without_parameters_agree_on_its_device) {
  model_tensors frozen{"frozen", {{"weight", at::ones({2})}}, {}};
  model_tensors_source model{
    [&frozen] { return frozen; },
    [&frozen](auto& out) {
      out.push_back(frozen.parameters.front().tensor.unsafeGetTensorImpl());
    }};
  auto group = c10::make_intrusive<noting_group>(0, 2);
  EXPECT_THROW(distributed_data_parallel(model, group), std::runtime_error);
  EXPECT_EQ(group->first, at::Device{at::kCPU});
  group->setBoundDeviceId(at::Device{at::kMeta, 0});
  EXPECT_THROW(distributed_data_parallel(model, group), std::runtime_error);
  EXPECT_TRUE(group->first->is_meta());
}

} // namespace

} // namespace troupe::internal
