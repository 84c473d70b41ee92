#include "troupe/runtime/run/callback_alarm.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using verdict = callback_alarm::verdict;
using std::chrono::milliseconds;

class callback_alarm_test : public testing::Test {
protected:
  verdict after(int ms, callback_alarm& alarm) {
    return alarm.check(begin + milliseconds{ms});
  }

  callback_alarm::time_point begin{std::chrono::hours{1}};
};

TEST_F(callback_alarm_test, names_one_that_does_not_answer_repeatedly) {
  callback_alarm alarm{milliseconds{30}};
  alarm.asked(begin);
  EXPECT_EQ(after(29, alarm), verdict::wait);
  EXPECT_EQ(after(30, alarm), verdict::name);
  EXPECT_EQ(after(31, alarm), verdict::wait);
  EXPECT_EQ(after(60, alarm), verdict::name);
  EXPECT_EQ(alarm.waited(begin + milliseconds{60}), milliseconds{60});
}

TEST_F(callback_alarm_test, is_silent_about_one_that_has_answered) {
  callback_alarm alarm{milliseconds{30}, milliseconds{50}};
  EXPECT_EQ(after(1000, alarm), verdict::wait);
  alarm.asked(begin);
  alarm.answered();
  EXPECT_EQ(after(1000, alarm), verdict::wait);
  alarm.asked(begin + milliseconds{1000});
  EXPECT_EQ(after(1029, alarm), verdict::wait);
  EXPECT_EQ(after(1030, alarm), verdict::name);
}

TEST_F(callback_alarm_test, gives_up_at_a_limit_of_its_own) {
  callback_alarm alarm{milliseconds{30}, milliseconds{50}};
  alarm.asked(begin);
  EXPECT_EQ(after(49, alarm), verdict::name);
  EXPECT_EQ(after(50, alarm), verdict::give_up);
}

TEST_F(callback_alarm_test, knows_when_to_look_again) {
  callback_alarm alarm{milliseconds{30}, milliseconds{50}};
  EXPECT_EQ(alarm.next_check(begin), std::nullopt);
  alarm.asked(begin);
  EXPECT_EQ(alarm.next_check(begin), milliseconds{30});
  EXPECT_EQ(after(30, alarm), verdict::name);
  EXPECT_EQ(alarm.next_check(begin + milliseconds{30}), milliseconds{20});
  EXPECT_EQ(alarm.next_check(begin + milliseconds{60}), milliseconds{0});
}

TEST_F(callback_alarm_test, wants_to_look_every_second) {
  callback_alarm alarm{milliseconds{0}, milliseconds{60'000}};
  alarm.asked(begin);
  EXPECT_EQ(alarm.next_check(begin), milliseconds{1000});
}

TEST_F(callback_alarm_test, counts_no_time_in_which_the_process_stood_still) {
  callback_alarm alarm{milliseconds{3000}, milliseconds{5000}};
  alarm.asked(begin);
  EXPECT_EQ(after(1000, alarm), verdict::wait);
  EXPECT_EQ(after(61'000, alarm), verdict::wait);
  EXPECT_EQ(alarm.waited(begin + milliseconds{61'000}), milliseconds{1000});
  EXPECT_EQ(after(62'900, alarm), verdict::wait);
  EXPECT_EQ(after(63'000, alarm), verdict::name);
  EXPECT_EQ(after(64'900, alarm), verdict::wait);
  EXPECT_EQ(after(65'000, alarm), verdict::give_up);
}

TEST_F(callback_alarm_test, a_standstill_before_the_call_changes_nothing) {
  callback_alarm alarm{milliseconds{0}, milliseconds{5000}};
  alarm.asked(begin - milliseconds{60'000});
  alarm.answered();
  alarm.asked(begin);
  for (int ms = 1000; ms < 5000; ms += 1000)
    EXPECT_EQ(after(ms, alarm), verdict::wait);
  EXPECT_EQ(after(5000, alarm), verdict::give_up);
}

TEST_F(callback_alarm_test, without_limits_it_never_looks) {
  callback_alarm alarm;
  alarm.asked(begin);
  EXPECT_EQ(alarm.next_check(begin), std::nullopt);
  EXPECT_EQ(after(1'000'000, alarm), verdict::wait);
}

} // namespace
} // namespace troupe
