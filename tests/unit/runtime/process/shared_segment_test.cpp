#include "troupe/runtime/process/shared_segment.hpp"

#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/child.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

auto soon() {
  return std::chrono::steady_clock::now() + 60s;
}

const std::atomic<bool> never{false};

TEST(shared_segment_test, is_the_same_memory_for_all_that_attach_to_it) {
  auto made = shared_segment::create(3);
  ASSERT_TRUE(made);
  auto attached = shared_segment::attach(made->descriptor());
  ASSERT_TRUE(attached);
  EXPECT_EQ(attached->ranks(), 3);
  *made->chunk_area(2, 1) = std::byte{7};
  *made->inline_area(1, 0) = std::byte{8};
  EXPECT_EQ(*attached->chunk_area(2, 1), std::byte{7});
  EXPECT_EQ(*attached->inline_area(1, 0), std::byte{8});
}

TEST(shared_segment_test, refuses_a_descriptor_of_something_else) {
  auto null = ::open("/dev/null", O_RDWR);
  auto refused = shared_segment::attach(null);
  ::close(null);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::protocol);
  auto closed = shared_segment::attach(-1);
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().message.find("descriptor -1"), std::string::npos);
}

TEST(shared_segment_test, refuses_the_segment_of_another_attempt) {
  auto made = shared_segment::create(2, {"run", 3}).value();
  EXPECT_TRUE(shared_segment::attach(made.descriptor(), {"run", 3}));
  auto later = shared_segment::attach(made.descriptor(), {"run", 4});
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ec::protocol);
  EXPECT_EQ(later.error().message,
            "the shared segment is of attempt 3 of run run, not of attempt 4 "
            "of run run");
  EXPECT_FALSE(shared_segment::attach(made.descriptor(), {"runs", 3}));
}

TEST(shared_segment_test, refuses_numbers_of_ranks_that_make_no_sense) {
  for (int ranks : {0, -1, shared_segment::max_ranks + 1}) {
    auto refused = shared_segment::create(ranks);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ec::invalid_argument);
  }
}

TEST(shared_segment_test, wakes_a_process_that_waits_for_a_step) {
  auto segment = shared_segment::create(2).value();
  std::thread other{[&] {
    EXPECT_EQ(segment.rank(1).wait_for(1, 0, soon(), never),
              segment_wait::reached);
    segment.rank(0).advance();
  }};
  EXPECT_EQ(test::run_in_child([&] {
              segment.rank(1).advance();
              auto done = segment.rank(0).wait_for(1, 0, soon(), never);
              ::_exit(done == segment_wait::reached ? 7 : 1);
            }),
            7 << 8);
  other.join();
}

TEST(shared_segment_test, ends_waits_of_other_processes_when_it_is_aborted) {
  auto segment = shared_segment::create(2).value();
  EXPECT_EQ(test::run_in_child([&] {
              segment.abort({ec::rank_failed, "rank 1: killed"});
              ::_exit(7);
            }),
            7 << 8);
  EXPECT_EQ(segment.rank(1).wait_for(1, 0, soon(), never), segment_wait::left);
  EXPECT_TRUE(segment.aborted());
  segment.abort({ec::stopped, "later"});
  EXPECT_EQ(segment.abort_reason(), (error{ec::rank_failed, "rank 1: killed"}));
}

TEST(shared_segment_test, an_abort_reaches_a_wait_that_sleeps_already) {
  auto segment = shared_segment::create(2).value();
  std::thread waiter{[&] {
    EXPECT_EQ(segment.rank(1).wait_for(1, 0, soon(), never),
              segment_wait::left);
  }};
  while (segment.rank(1).sleepers.load() == 0)
    std::this_thread::yield();
  segment.abort();
  waiter.join();
}

TEST(shared_segment_test, cuts_a_long_reason) {
  auto segment = shared_segment::create(1).value();
  segment.abort({ec::storage, std::string(10'000, 'x')});
  auto reason = segment.abort_reason();
  EXPECT_EQ(reason.code, ec::storage);
  EXPECT_GT(reason.message.size(), 400U);
  EXPECT_LT(reason.message.size(), 1000U);
}

TEST(segment_rank_test, counts_steps_beyond_the_range_of_its_word) {
  auto segment = shared_segment::create(1).value();
  auto& rank = segment.rank(0);
  rank.progress.store(0xffff'fffeU); // One step before it wraps around.
  EXPECT_TRUE(rank.reached(0x7fff'ffffU));
  EXPECT_FALSE(rank.reached(0x8000'0000U));
  rank.advance();
  EXPECT_TRUE(rank.reached(0x8000'0000U));
}

TEST(segment_rank_test, a_rank_that_left_gives_its_reason_and_ends_waits) {
  auto segment = shared_segment::create(1).value();
  auto& rank = segment.rank(0);
  EXPECT_EQ(rank.left(), "");
  rank.advance();
  rank.leave("first");
  rank.leave("second");
  EXPECT_EQ(rank.left(), "first");
  EXPECT_EQ(rank.wait_for(1, 0, soon(), never), segment_wait::reached);
  EXPECT_EQ(rank.wait_for(2, 0, soon(), never), segment_wait::left);
}

TEST(segment_rank_test, a_wait_ends_at_its_deadline) {
  auto segment = shared_segment::create(1).value();
  auto deadline = std::chrono::steady_clock::now() + 20ms;
  EXPECT_EQ(segment.rank(0).wait_for(1, 0, deadline, never),
            segment_wait::timed_out);
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(segment_rank_test, a_wait_that_stood_still_gives_its_peer_time) {
  auto segment = shared_segment::create(1).value();
  auto& rank = segment.rank(0);
  std::atomic<bool> is_over{false};
  std::thread peer{[&] {
    while (rank.sleepers.load() == 0 && !is_over.load())
      std::this_thread::yield();
    rank.advance();
  }};
  auto long_ago = std::chrono::steady_clock::now() - 60s;
  EXPECT_EQ(rank.wait_for(1, 0, long_ago, never), segment_wait::reached);
  is_over = true;
  peer.join();
}

} // namespace

} // namespace troupe::internal
