#include "troupe/runtime/run/callback_watchdog.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using verdict = callback_watchdog::verdict;
using std::chrono::milliseconds;

class callback_watchdog_test : public testing::Test {
protected:
  verdict after(int ms, callback_watchdog& watchdog) {
    return watchdog.check(begin + milliseconds{ms});
  }

  callback_watchdog::time_point begin{std::chrono::hours{1}};
};

TEST_F(callback_watchdog_test, names_one_that_does_not_answer_repeatedly) {
  callback_watchdog watchdog{milliseconds{30}};
  watchdog.asked(begin);
  EXPECT_EQ(after(29, watchdog), verdict::wait);
  EXPECT_EQ(after(30, watchdog), verdict::name);
  EXPECT_EQ(after(31, watchdog), verdict::wait);
  EXPECT_EQ(after(60, watchdog), verdict::name);
  EXPECT_EQ(watchdog.waited(begin + milliseconds{60}), milliseconds{60});
}

TEST_F(callback_watchdog_test, is_silent_about_one_that_has_answered) {
  callback_watchdog watchdog{milliseconds{30}, milliseconds{50}};
  EXPECT_EQ(after(1000, watchdog), verdict::wait);
  watchdog.asked(begin);
  watchdog.answered();
  EXPECT_EQ(after(1000, watchdog), verdict::wait);
  watchdog.asked(begin + milliseconds{1000});
  EXPECT_EQ(after(1029, watchdog), verdict::wait);
  EXPECT_EQ(after(1030, watchdog), verdict::name);
}

TEST_F(callback_watchdog_test, gives_up_at_a_limit_of_its_own) {
  callback_watchdog watchdog{milliseconds{30}, milliseconds{50}};
  watchdog.asked(begin);
  EXPECT_EQ(after(49, watchdog), verdict::name);
  EXPECT_EQ(after(50, watchdog), verdict::give_up);
}

TEST_F(callback_watchdog_test, knows_when_to_look_again) {
  callback_watchdog watchdog{milliseconds{30}, milliseconds{50}};
  EXPECT_EQ(watchdog.next_check(begin), std::nullopt);
  watchdog.asked(begin);
  EXPECT_EQ(watchdog.next_check(begin), milliseconds{30});
  EXPECT_EQ(after(30, watchdog), verdict::name);
  EXPECT_EQ(watchdog.next_check(begin + milliseconds{30}), milliseconds{20});
  EXPECT_EQ(watchdog.next_check(begin + milliseconds{60}), milliseconds{0});
}

TEST_F(callback_watchdog_test, wants_to_look_every_second) {
  callback_watchdog watchdog{milliseconds{0}, milliseconds{60'000}};
  watchdog.asked(begin);
  EXPECT_EQ(watchdog.next_check(begin), milliseconds{1000});
}

TEST_F(callback_watchdog_test,
       does_not_count_time_in_which_the_process_was_suspended) {
  callback_watchdog watchdog{milliseconds{3000}, milliseconds{5000}};
  watchdog.asked(begin);
  EXPECT_EQ(after(1000, watchdog), verdict::wait);
  EXPECT_EQ(after(61'000, watchdog), verdict::wait);
  EXPECT_EQ(watchdog.waited(begin + milliseconds{61'000}), milliseconds{1000});
  EXPECT_EQ(after(62'900, watchdog), verdict::wait);
  EXPECT_EQ(after(63'000, watchdog), verdict::name);
  EXPECT_EQ(after(64'900, watchdog), verdict::wait);
  EXPECT_EQ(after(65'000, watchdog), verdict::give_up);
}

TEST_F(callback_watchdog_test, a_standstill_before_the_call_changes_nothing) {
  callback_watchdog watchdog{milliseconds{0}, milliseconds{5000}};
  watchdog.asked(begin - milliseconds{60'000});
  watchdog.answered();
  watchdog.asked(begin);
  for (int ms = 1000; ms < 5000; ms += 1000)
    EXPECT_EQ(after(ms, watchdog), verdict::wait);
  EXPECT_EQ(after(5000, watchdog), verdict::give_up);
}

TEST_F(callback_watchdog_test, without_limits_it_never_looks) {
  callback_watchdog watchdog;
  watchdog.asked(begin);
  EXPECT_EQ(watchdog.next_check(begin), std::nullopt);
  EXPECT_EQ(after(1'000'000, watchdog), verdict::wait);
}

} // namespace
} // namespace troupe::internal
