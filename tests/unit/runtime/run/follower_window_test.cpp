#include "troupe/runtime/run/follower_window.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using follower_call = follower_window::call;

/// A window with *count* unanswered reports.
follower_window window_with(std::size_t count) {
  follower_window result;
  for (std::size_t i = 0; i < count; ++i)
    result.called(follower_call::report);
  return result;
}

TEST(follower_window_test, a_slow_follower_misses_reports_until_it_answers) {
  auto window = window_with(follower_window::max_unanswered - 1);
  EXPECT_TRUE(window.takes(follower_call::report));
  window.called(follower_call::report);
  EXPECT_FALSE(window.takes(follower_call::report));
  window.answered(follower_call::report);
  EXPECT_TRUE(window.takes(follower_call::report));
}

TEST(follower_window_test, a_slow_follower_misses_nothing_but_reports) {
  auto window = window_with(follower_window::max_unanswered);
  EXPECT_TRUE(window.takes(follower_call::other));
  window.called(follower_call::other);
  EXPECT_TRUE(window.takes(follower_call::other));
  EXPECT_TRUE(window.takes(follower_call::last));
  window.answered(follower_call::report);
  EXPECT_FALSE(window.takes(follower_call::report))
    << "the other call counts, too";
}

TEST(follower_window_test, the_end_waits_for_the_answer_to_it_only) {
  auto window = window_with(2);
  EXPECT_FALSE(window.owes_last());
  window.called(follower_call::last);
  EXPECT_TRUE(window.owes_last());
  window.answered(follower_call::report);
  EXPECT_TRUE(window.owes_last());
  window.answered(follower_call::last);
  EXPECT_FALSE(window.owes_last());
}

} // namespace
} // namespace troupe::internal
