// A preempted run: when ranks learn of it, and how it ends.

#include "tests/actors/driver_fixture.hpp"

namespace troupe::internal::test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class driver_preemption_test : public driver_test {
protected:
  driver_preemption_test() { config.stop_grace = ms{1000}; }

  void preempt(std::int64_t grace_ms = -1) {
    send_anonymous(driver, preempt_run{"SIGTERM came", grace_ms});
    system.settle();
  }

  /// After which report ranks are to leave, as the answer to *index* says.
  std::optional<std::uint64_t> leaves_after(std::uint64_t index) {
    auto answer = report(index);
    EXPECT_TRUE(answer->value) << answer->failure.message;
    if (!answer->value || !answer->value->stop)
      return std::nullopt;
    EXPECT_EQ(answer->value->stop->reason, "SIGTERM came");
    return answer->value->stop->index;
  }
};

TEST_F(driver_preemption_test, ranks_learn_of_it_with_their_next_report) {
  run();
  EXPECT_EQ(leaves_after(0), std::nullopt);
  preempt();
  EXPECT_EQ(leaves_after(1), 1u);
  EXPECT_EQ(leaves_after(2), 1u);
  EXPECT_FALSE(ranks.asked_to_end(0));
  auto last = report_checkpoint(3);
  EXPECT_TRUE(last->value);
  finish();
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::preempted);
  EXPECT_EQ(status().state, run_state::preempted);
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::stopped);
  EXPECT_EQ(x.error->message,
            "SIGTERM came; the next run with run.name = \"r\" resumes it");
  ASSERT_TRUE(x.checkpoint);
  EXPECT_EQ(x.checkpoint->name(), "c3");
  EXPECT_THAT(journal_lines(), ElementsAre("attempt_begun", "0", "preempted",
                                           "1", "2", "3 c3", "run_ended"));
  EXPECT_EQ(callback->calls.back(), "after_run preempted");
}

TEST_F(driver_preemption_test, ranks_learn_how_much_time_is_left) {
  run();
  preempt();
  system.pass(ms{400});
  auto first = report(0);
  ASSERT_TRUE(first->value && first->value->stop);
  EXPECT_EQ(first->value->stop->left_ms, 600);
  system.pass(ms{100});
  auto second = report(1);
  ASSERT_TRUE(second->value && second->value->stop);
  EXPECT_EQ(second->value->stop->left_ms, 500);
  EXPECT_EQ(second->value->stop->deadline_ms, first->value->stop->deadline_ms);
}

TEST_F(driver_preemption_test, no_secret_of_its_reason_is_kept) {
  run();
  send_anonymous(driver, preempt_run{"https://me:hunter2@host said so", -1});
  system.settle();
  finish();
  EXPECT_THAT(monitor->take_notes(),
              Contains(HasSubstr("https://***@host said so; ranks have")));
  EXPECT_EQ(bytes_of(store->folder().journal_file()).find("hunter2"),
            std::string::npos);
}

TEST_F(driver_preemption_test, no_secret_of_a_warning_is_kept) {
  run();
  send_anonymous(
    driver,
    attempt_warning{0, "rank 0 failed in https://me:hunter2@host\nat x", true});
  system.settle();
  auto shown = HasSubstr("rank 0 failed in https://***@host\nat x");
  EXPECT_THAT(status().waits, shown);
  EXPECT_THAT(monitor->take_notes(), Contains(shown));
  stop();
  EXPECT_EQ(bytes_of(store->folder().journal_file()).find("hunter2"),
            std::string::npos);
}

TEST_F(driver_preemption_test, RSM_7_an_attempt_that_was_left_is_continued) {
  config.failure.max_failures = 0;
  run();
  report_checkpoint(0);
  send_anonymous(driver, attempt_ended{0, false, false, "h1 leaves"});
  system.settle();
  ranks.attempt = 1;
  ranks.rise_all(2);
  EXPECT_EQ(status().state, run_state::running);
  EXPECT_EQ(report(1)->value->index, 1u);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_EQ(outcome().attempts, 2u);
  EXPECT_THAT(journal_lines(),
              ElementsAre("attempt_begun", "0 c0", "attempt_left",
                          "attempt_begun", "1", "run_ended"));
}

TEST_F(driver_preemption_test, ranks_lost_with_a_host_that_leaves_are_free) {
  config.failure.max_failures = 0;
  run();
  attempt_failed lost{0, true, {ec::stopped, "x"}, {}, false, "h1 leaves"};
  lost.ranks[1] = {.kind = rank_failure::kind_type::lost, .what = "h1"};
  send_anonymous(driver, lost);
  system.settle();
  EXPECT_THAT(callback->calls, Contains(HasSubstr("after_exception")));
  EXPECT_THAT(journal_lines(), Contains("attempt_left"));
  EXPECT_THAT(journal_lines(), testing::Not(Contains("ranks_failed")));
  ranks.attempt = 1;
  ranks.rise_all(2);
  EXPECT_EQ(status().state, run_state::running);
}

TEST_F(driver_preemption_test, ranks_that_run_ahead_leave_after_one_report) {
  run();
  auto ahead = [this](int rank, std::uint64_t index) {
    return system.ask<report_committed>(
      ranks.agent, troupe::internal::report{ranks.attempt,
                                            {rank, index, {}, std::nullopt},
                                            /*waits*/ false});
  };
  auto first = ahead(0, 0);
  ahead(0, 1);
  preempt();
  ahead(1, 0);
  ASSERT_TRUE(first->value);
  ASSERT_TRUE(first->value->stop);
  // Rank 0 may have sent so many reports before it gets this answer.
  EXPECT_EQ(first->value->stop->index, 16u);
  auto second = ahead(1, 1);
  EXPECT_EQ(second->value->stop->index, 16u);
}

TEST_F(driver_preemption_test, loops_that_were_done_anyway_have_finished) {
  run();
  report(0);
  preempt();
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::finished);
  EXPECT_FALSE(outcome().error);
}

TEST_F(driver_preemption_test, ranks_that_stay_are_ended_as_by_a_stop) {
  config.stop_timeout = ms{400};
  run();
  preempt();
  report(0);
  system.pass(ms{999});
  EXPECT_FALSE(ranks.asked_to_end(0));
  system.pass(ms{1});
  EXPECT_TRUE(ranks.asked_to_end(0));
  EXPECT_TRUE(ranks.asked_to_end(1));
  ranks.obey(0);
  system.pass(ms{400});
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  ranks.kill(1, SIGKILL);
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::preempted);
  EXPECT_THAT(x.error->message, HasSubstr("did not leave their loops in time"));
}

TEST_F(driver_preemption_test, the_caller_says_how_long_and_may_say_less) {
  run();
  preempt(5000);
  preempt(100);
  preempt(9000);
  system.pass(ms{99});
  EXPECT_FALSE(ranks.asked_to_end(0));
  system.pass(ms{1});
  EXPECT_TRUE(ranks.asked_to_end(0));
}

TEST_F(driver_preemption_test, no_grace_is_longer_than_the_sender_allows) {
  config.sender_grace = ms{1500};
  config.stop_timeout = ms{1400};
  run();
  preempt(5000);
  system.pass(ms{100});
  EXPECT_TRUE(ranks.asked_to_end(0));
}

TEST_F(driver_preemption_test, a_failure_on_the_way_out_is_not_charged) {
  config.failure.max_failures = 5;
  run();
  preempt();
  report(0);
  kill();
  auto x = outcome();
  EXPECT_EQ(x.status, run_status_kind::preempted);
  EXPECT_THAT(x.error->message, HasSubstr("rank 1: killed by signal 11"));
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(driver_preemption_test, a_run_whose_ranks_are_not_up_ends_at_once) {
  start();
  ranks.rise(0);
  preempt();
  EXPECT_TRUE(ranks.asked_to_end(0));
  ranks.obey(0);
  ranks.kill(1, SIGKILL);
  EXPECT_EQ(outcome().status, run_status_kind::preempted);
}

TEST_F(driver_preemption_test, a_stop_ends_the_grace) {
  run();
  preempt();
  stop();
  EXPECT_TRUE(ranks.asked_to_end(0));
  ranks.obey(0);
  ranks.obey(1);
  EXPECT_EQ(outcome().status, run_status_kind::aborted);
}

TEST_F(driver_preemption_test, the_next_driver_resumes_the_run) {
  run();
  preempt();
  report_checkpoint(0);
  finish();
  EXPECT_EQ(outcome().status, run_status_kind::preempted);
  store.reset();
  monitor = std::make_shared<run_monitor>();
  start();
  auto hello = ranks.rise(0);
  ASSERT_TRUE(hello->value);
  EXPECT_EQ(hello->value->facts.first_report, 1u);
  ASSERT_TRUE(hello->value->resume);
  EXPECT_EQ(hello->value->resume->path(), checkpoint_path("c0"));
}

TEST_F(driver_preemption_test, the_user_and_the_journal_are_informed) {
  run();
  preempt();
  EXPECT_THAT(monitor->take_notes(),
              Contains(HasSubstr("SIGTERM came; ranks have 1 s to leave")));
}

} // namespace troupe::internal::test
