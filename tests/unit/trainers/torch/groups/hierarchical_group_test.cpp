#include "troupe/trainers/torch/groups/hierarchical_group.hpp"

#include <latch>

#include <gtest/gtest.h>

#include "tests/support/torch_ranks.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

using tensors = std::vector<at::Tensor>;

const std::vector<std::string> nothing(4);

/// How a sum of *count* elements failed; `ec::none` if it did not.
error sum_of(c10d::Backend& group, std::int64_t count) {
  try {
    tensors x{at::ones({count})};
    group.allreduce(x)->wait();
  } catch (const train_error& e) {
    return e.reason();
  }
  return {};
}

void expect_mention(const error& reason, const std::string& what) {
  test::check(reason.message.find(what) != std::string::npos,
              "'" + reason.message + "' lacks " + what);
}

TEST(hierarchical_group_test, many_hosts_get_the_same_bits) {
  for (auto [ranks, hosts] : {std::pair{4, 4}, std::pair{5, 3}}) {
    test::hierarchical_meeting_place place{ranks, false, hosts};
    auto failures = test::run_threads(ranks, [&](int rank) {
      auto group = place.group(0, rank, ranks);
      for (std::int64_t count : {7, 5000, 1'000'003}) {
        tensors x{
          (at::arange(count, at::kLong) * (rank + 3) % 1009).to(at::kFloat)
          / (rank + 7.0F)};
        auto exact = x[0].to(at::kDouble);
        group->allreduce(x)->wait();
        tensors sum{exact};
        group->allreduce(sum)->wait();
        test::check(at::allclose(x[0].to(at::kDouble), sum[0]), "the sum");
        std::vector<tensors> all(1);
        for (int r = 0; r < ranks; ++r)
          all[0].push_back(at::empty_like(x[0]));
        group->allgather(all, x)->wait();
        for (auto& other : all[0])
          test::check(at::equal(other, x[0]), "other bits");
      }
    });
    EXPECT_EQ(failures,
              std::vector<std::string>(static_cast<std::size_t>(ranks)));
  }
}

TEST(hierarchical_group_test, ranks_of_two_hosts_that_differ_learn_it) {
  test::hierarchical_meeting_place place{4, false};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4);
    auto reason = sum_of(*group, rank < 2 ? 100 : 200'000);
    expect_mention(reason, "of 100 elements");
    expect_mention(reason, "of 200000 elements");
    test::check(sum_of(*group, 1) == reason, "the group works again");
  });
  EXPECT_EQ(failures, nothing);
}

TEST(hierarchical_group_test, names_the_host_that_is_late) {
  test::hierarchical_meeting_place place{4, false};
  std::latch over{4};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4, rank < 2 ? 50ms : 60'000ms);
    error reason;
    if (rank < 2)
      reason = sum_of(*group, 100'000);
    over.arrive_and_wait();
    if (rank < 2)
      expect_mention(reason, "host b (ranks 2-3) did not arrive within 50 ms");
    if (rank == 0) {
      test::check(reason.code == ec::timeout, "another code");
      test::check(place.segment(0, 4, 0).activity(0).gave_up_collective(),
                  "not shown");
    }
  });
  EXPECT_EQ(failures, nothing);
}

TEST(hierarchical_group_test, an_abort_of_one_rank_ends_all_hosts) {
  test::hierarchical_meeting_place place{4, false};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4);
    if (rank == 3) {
      group->abort({ec::rank_failed, "rank 3: killed by signal 9"});
      return;
    }
    auto reason = sum_of(*group, 1'000'000);
    test::check(reason.code == ec::rank_failed, reason.message);
    if (rank == 2)
      expect_mention(reason, "rank 3: killed by signal 9");
    else
      expect_mention(reason, "host b (ranks 2-3) has left the group");
  });
  EXPECT_EQ(failures, nothing);
}

TEST(hierarchical_group_test, a_rank_that_leaves_ends_all_hosts) {
  test::hierarchical_meeting_place place{4, false};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4);
    test::check(sum_of(*group, 1'000'000).code == ec::none, "it failed");
    if (rank == 1)
      return;
    auto reason = sum_of(*group, 1'000'000);
    test::check(reason.code == ec::rank_failed, reason.message);
    expect_mention(reason, rank == 0 ? "rank 1 has left the group"
                                     : "host a (ranks 0-1) has left");
  });
  EXPECT_EQ(failures, nothing);
}

} // namespace

} // namespace troupe::internal
