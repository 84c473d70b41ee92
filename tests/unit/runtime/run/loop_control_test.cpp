#include "troupe/runtime/run/loop_control.hpp"

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

const error first{ec::stopped, "first"};
const error second{ec::rank_failed, "second"};

TEST(loop_control_test, lets_a_loop_run_until_it_is_ended) {
  loop_control control;
  EXPECT_FALSE(control.ended());
  EXPECT_FALSE(control.reason());
  control.end(first);
  EXPECT_TRUE(control.ended());
  EXPECT_EQ(control.reason(), first);
}

const stop_info away{
  stop_info::kind_type::preempted, "SIGTERM",
  std::chrono::system_clock::time_point{std::chrono::seconds{7}}};

TEST(loop_control_test, a_preempted_loop_leaves_after_the_given_report) {
  loop_control control;
  control.reported(3);
  control.preempt(away, 5);
  control.reported(4);
  EXPECT_FALSE(control.stop_requested());
  EXPECT_FALSE(control.stop_info());
  control.reported(5);
  EXPECT_TRUE(control.stop_requested());
  EXPECT_EQ(control.stop_info(), away);
  EXPECT_FALSE(control.ended());
}

TEST(loop_control_test, a_second_preemption_changes_the_deadline_alone) {
  loop_control control;
  control.preempt(away, 5);
  auto later = away;
  later.reason = "SIGUSR1";
  later.deadline += std::chrono::seconds{1};
  control.preempt(later, 2);
  control.reported(4);
  EXPECT_FALSE(control.stop_requested());
  control.reported(5);
  ASSERT_TRUE(control.stop_info());
  EXPECT_EQ(control.stop_info()->reason, "SIGTERM");
  EXPECT_EQ(control.stop_info()->deadline, later.deadline);
}

TEST(loop_control_test, a_preemption_replaces_what_only_continues) {
  loop_control control;
  auto moves = away;
  moves.kind = stop_info::kind_type::continues;
  control.preempt(moves, 5);
  control.preempt(away, 5);
  control.reported(5);
  EXPECT_EQ(control.stop_info(), away);
}

TEST(loop_control_test, an_ended_loop_knows_why) {
  loop_control control;
  control.end(first);
  EXPECT_TRUE(control.stop_requested());
  ASSERT_TRUE(control.stop_info());
  EXPECT_EQ(control.stop_info()->kind, stop_info::kind_type::stopped);
  EXPECT_EQ(control.stop_info()->reason, first.message);
}

TEST(loop_control_test, only_the_first_reason_counts) {
  loop_control control;
  std::vector<error> heard;
  control.on_end([&](const error& x) { heard.push_back(x); });
  control.end(first);
  control.end(second);
  EXPECT_EQ(control.reason(), first);
  EXPECT_EQ(heard, std::vector{first});
}

TEST(loop_control_test, a_listener_added_after_the_end_is_called_at_once) {
  loop_control control;
  control.end(first);
  error heard;
  control.on_end([&](const error& x) { heard = x; });
  EXPECT_EQ(heard, first);
}

TEST(loop_control_test, a_removed_listener_is_not_called) {
  loop_control control;
  int calls = 0;
  control.on_end([&](const error&) { ++calls; });
  control.on_end({});
  control.end(first);
  control.on_end({});
  EXPECT_EQ(calls, 0);
}

TEST(loop_control_test, each_kind_of_listener_is_called) {
  loop_control control;
  auto groups = 0, mailboxes = 0;
  control.on_end([&](const error&) { ++groups; });
  control.on_end([&](const error&) { ++mailboxes; },
                 loop_control::listener::mailbox);
  control.on_end({});
  control.on_end([&](const error&) { ++groups; });
  control.end(first);
  EXPECT_EQ(groups, 1);
  EXPECT_EQ(mailboxes, 1);
}

// The callback of a collective's future may ask, and may release the group.
TEST(loop_control_test, a_listener_may_ask_why_and_remove_itself) {
  loop_control control;
  std::optional<stop_info> why;
  error reason;
  auto listener = [&](const error&) {
    control.on_end({});
    control.end(second);
    why = control.stop_info();
    reason = control.reason();
  };
  control.on_end(listener);
  control.end(first);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->reason, first.message);
  EXPECT_EQ(reason, first);
  why.reset();
  control.on_end(listener); // at once
  EXPECT_TRUE(why);
}

TEST(loop_control_test, a_listener_may_remove_another_one) {
  loop_control control;
  int calls = 0;
  control.on_end(
    [&](const error&) { control.on_end({}, loop_control::listener::mailbox); });
  control.on_end([&](const error&) { ++calls; },
                 loop_control::listener::mailbox);
  control.end(first);
  EXPECT_EQ(calls, 0);
}

TEST(loop_control_test, other_threads_may_ask_why_while_a_listener_is_called) {
  loop_control control;
  std::optional<stop_info> why;
  control.on_end([&](const error&) {
    std::thread other{[&] { why = control.stop_info(); }};
    other.join();
  });
  control.end(first);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->reason, first.message);
}

// It may hold the last reference to a group, whose end runs callbacks.
TEST(loop_control_test, the_end_of_a_listener_may_ask_why) {
  loop_control control;
  int asked = 0;
  auto asks_at_its_end = [&] {
    return std::shared_ptr<void>{nullptr, [&](void*) {
                                   (void) control.stop_info();
                                   ++asked;
                                 }};
  };
  control.on_end([held = asks_at_its_end()](const error&) {});
  control.on_end({}); // removed
  EXPECT_EQ(asked, 1);
  control.on_end([held = asks_at_its_end()](const error&) {});
  control.on_end([held = asks_at_its_end()](const error&) {}); // replaced
  EXPECT_EQ(asked, 2);
  control.end(first); // called
  EXPECT_EQ(asked, 3);
}

TEST(loop_control_test, the_last_listener_replaces_the_one_before) {
  loop_control control;
  int before = 0;
  int after = 0;
  control.on_end([&](const error&) { ++before; });
  control.on_end([&](const error&) { ++after; });
  control.end(first);
  EXPECT_EQ(before, 0);
  EXPECT_EQ(after, 1);
}

TEST(loop_control_test, no_call_is_under_way_once_a_listener_is_taken_back) {
  for (int round = 0; round < 200; ++round) {
    loop_control control;
    auto target = std::make_unique<int>(0);
    control.on_end([&target](const error&) { ++*target; });
    std::thread other{[&] { control.end(first); }};
    control.on_end({});
    auto seen = *target;
    target.reset(); // would be used by a call under way
    other.join();
    EXPECT_TRUE(seen == 0 || seen == 1);
    EXPECT_TRUE(control.ended());
  }
}

} // namespace
} // namespace troupe::internal
