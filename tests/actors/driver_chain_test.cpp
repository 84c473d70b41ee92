// The driver with callbacks that are actors.

#include <gmock/gmock.h>

#include "tests/actors/driver_fixture.hpp"
#include "tests/actors/scripted_callback.hpp"
#include "tests/support/pending_reports.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

class driver_with_chain_test : public driver_test {
protected:
  void add_actor(actor_script x) {
    x.log = &log;
    scripts.push_back(std::make_shared<actor_script>(std::move(x)));
    actors.push_back(
      {scripts.back()->name, system.spawn(played_actor, scripts.back())});
  }

  std::vector<std::string> log;
  std::vector<script> scripts;
};

TEST_F(driver_with_chain_test, an_actor_receives_the_whole_run) {
  add_actor({.name = "a"});
  run();
  report(0);
  finish();
  EXPECT_THAT(log, ElementsAre("a before_run r", "a after_report 0",
                               "a after_run finished"));
  EXPECT_EQ(callback->calls.size(), 3u);
  ASSERT_EQ(status().callbacks.size(), 2u);
  EXPECT_THAT(status().callbacks[0].name, HasSubstr("recorded_callback"));
  EXPECT_EQ(status().callbacks[1].name, "a");
}

TEST_F(driver_with_chain_test, a_slow_actor_fills_the_queue) {
  config.callback_queue = 2;
  add_actor({.name = "a"});
  start();
  ranks.rise_all(2);
  system.hold(actors[0].actor);
  EXPECT_TRUE(report(0)->value);
  EXPECT_TRUE(report(1)->value);
  auto held_back = report(2);
  EXPECT_TRUE(held_back->pending());
  system.pass(std::chrono::seconds{3});
  system.release();
  EXPECT_TRUE(held_back->value);
  EXPECT_EQ(status().callbacks.at(1).seconds, 3);
  EXPECT_EQ(log.back(), "a after_report 2");
}

TEST_F(driver_with_chain_test, an_actor_that_ends_is_noted_and_missed_no_more) {
  add_actor({.name = "a", .throws_in = "after_report"});
  run();
  report(0);
  report(1);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_THAT(monitor->take_notes(), ElementsAre(HasSubstr("(a) failed in")));
  EXPECT_THAT(
    journal_lines(),
    ElementsAre("attempt_begun", "0", "callback_failed", "1", "run_ended"));
}

TEST_F(driver_with_chain_test,
       N4_what_an_actor_that_ended_missed_stays_pending) {
  add_actor({.name = "a"});
  run();
  report(0);
  caf::anon_send_exit(actors[0].actor, caf::exit_reason::kill);
  report(1);
  report(2);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(pending_reports(*store).size(), 2u);
}

TEST_F(driver_with_chain_test, an_actor_that_fails_ends_the_run_if_it_is_to) {
  config.callback_errors = callback_errors::abort;
  add_actor({.name = "a", .fails_in = "before_run"});
  start();
  EXPECT_TRUE(ranks.launcher->launched.empty());
  ASSERT_TRUE(outcome().error);
  EXPECT_EQ(outcome().error->code, ec::callback_failed);
  EXPECT_EQ(log.back(), "a after_run errored");
}

} // namespace troupe::internal::test
