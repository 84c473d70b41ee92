#include "troupe/runtime/run/callback_turns.hpp"

#include <gmock/gmock.h>

#include "tests/support/start_time.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::t0;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Actors "a", "b" and "c". Only "c" observes.
class callback_turns_test : public testing::Test {
protected:
  using strings = std::vector<std::string>;

  static constexpr callback_turns::event report{"after_report"};
  static constexpr callback_turns::event state{"state_changed", true};

  void use(bool has_classes, bool aborts = false) {
    turns = callback_turns{{{"a"}, {"b"}, {"c", true}}, has_classes, aborts};
  }

  /// Opens the next turn and returns whose it is; empty: no one's.
  std::string next() {
    auto x = turns.next(now);
    if (!x)
      return {};
    number = x->number;
    return x->actor ? std::string(1, static_cast<char>('a' + *x->actor))
                    : "classes";
  }

  void answer(std::vector<error> failures = {},
              std::vector<run_order> orders = {}) {
    turns.answered(
      {.failures = std::move(failures), .orders = std::move(orders)}, now);
  }

  /// Lets all that are left answer, and returns who those were.
  strings pass() {
    strings result;
    for (auto who = next(); !who.empty(); who = next()) {
      result.push_back(who);
      answer();
    }
    return result;
  }

  bool lose(std::size_t position) {
    return turns.lost(position, "has ended", now);
  }

  strings failures_of(const callback_done& x) {
    strings result;
    for (auto& failure : x.failures) {
      EXPECT_EQ(failure.code, ec::callback_failed);
      result.push_back(failure.message);
    }
    return result;
  }

  callback_turns turns{{{"a"}, {"b"}, {"c", true}}, false, false};
  std::uint64_t number = 0; ///< Of the last turn.
  callback_turns::time_point now = t0;
};

TEST_F(callback_turns_test, calls_classes_first_and_then_actors_in_order) {
  use(true);
  turns.begin(report);
  EXPECT_EQ(next(), "classes");
  turns.classes_answered({.seconds = 2, .times = {{"class", 2}}});
  EXPECT_THAT(pass(), ElementsAre("a", "b", "c"));
  auto outcome = turns.take_outcome();
  EXPECT_THAT(outcome.times,
              ElementsAre(callback_time{"class", 2}, callback_time{"a", 0},
                          callback_time{"b", 0}, callback_time{"c", 0}));
  EXPECT_THAT(outcome.failures, IsEmpty());
  EXPECT_THAT(outcome.skipped, IsEmpty());
}

TEST_F(callback_turns_test, without_callbacks_an_event_is_over_at_once) {
  turns = callback_turns{};
  turns.begin(report);
  EXPECT_EQ(next(), "");
}

TEST_F(callback_turns_test, adds_up_times_and_orders) {
  turns.begin(report);
  std::vector<run_order> orders[] = {
    {{finish_run{"good"}}}, {{resize_callback_queue{5}}, {abort_run{}}}};
  for (auto& given : orders) {
    next();
    now += 1500ms;
    answer({}, given);
  }
  EXPECT_THAT(pass(), ElementsAre("c"));
  auto outcome = turns.take_outcome();
  EXPECT_EQ(outcome.seconds, 3);
  EXPECT_THAT(outcome.times,
              ElementsAre(callback_time{"a", 1.5}, callback_time{"b", 1.5},
                          callback_time{"c", 0}));
  ASSERT_EQ(outcome.orders.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<finish_run>(outcome.orders[0].what));
  EXPECT_TRUE(std::holds_alternative<abort_run>(outcome.orders[2].what));
}

TEST_F(callback_turns_test, an_outcome_has_nothing_of_earlier_events) {
  turns.begin(report);
  next();
  answer({{ec::storage, "no space left"}});
  pass();
  turns.take_outcome();
  turns.begin(report);
  pass();
  auto outcome = turns.take_outcome();
  EXPECT_THAT(outcome.failures, IsEmpty());
  EXPECT_EQ(outcome.times.size(), 3u);
}

TEST_F(callback_turns_test, CT_1_states_of_the_run_are_for_observers) {
  turns.begin(state);
  EXPECT_THAT(pass(), ElementsAre("c"));
  auto outcome = turns.take_outcome();
  EXPECT_EQ(outcome.times.size(), 3u);
  EXPECT_THAT(outcome.skipped, IsEmpty());
}

TEST_F(callback_turns_test, CT_1_an_event_that_ends_the_run_still_goes_to_all) {
  use(false, true);
  turns.begin(report);
  next();
  answer({{ec::storage, "no space left"}});
  EXPECT_THAT(pass(), ElementsAre("b", "c"));
  EXPECT_TRUE(turns.take_outcome().abort);
}

TEST_F(callback_turns_test, CT_2_one_that_fails_gets_later_events) {
  turns.begin(report);
  next();
  answer({{ec::storage, "disk https://me:hunter2@nas"}});
  pass();
  auto outcome = turns.take_outcome();
  EXPECT_THAT(failures_of(outcome),
              ElementsAre("callback actor 1 (a) failed in after_report: disk "
                          "https://***@nas"));
  EXPECT_FALSE(outcome.abort);
  turns.begin(report);
  EXPECT_EQ(next(), "a");
}

TEST_F(callback_turns_test, CT_2_so_does_one_that_an_event_is_not_sent_to) {
  turns.begin(report);
  next();
  turns.not_called("takes 20 bytes", now);
  EXPECT_THAT(pass(), ElementsAre("b", "c"));
  auto outcome = turns.take_outcome();
  EXPECT_THAT(failures_of(outcome),
              ElementsAre("callback actor 1 (a) was not called: its "
                          "after_report takes 20 bytes"));
  EXPECT_THAT(outcome.skipped, IsEmpty());
  turns.begin(report);
  EXPECT_EQ(next(), "a");
}

TEST_F(callback_turns_test, CT_3_one_that_ends_in_its_turn_fails_in_it) {
  turns.begin(report);
  next();
  EXPECT_TRUE(lose(0));
  EXPECT_FALSE(lose(0)) << "known already";
  pass();
  auto outcome = turns.take_outcome();
  EXPECT_THAT(failures_of(outcome),
              ElementsAre("callback actor 1 (a) has ended; the run continues "
                          "without it"));
  EXPECT_THAT(outcome.skipped, ElementsAre("callback actor 1 (a)"));
  turns.begin(report);
  EXPECT_THAT(pass(), ElementsAre("b", "c"));
  outcome = turns.take_outcome();
  EXPECT_THAT(outcome.failures, IsEmpty());
  EXPECT_THAT(outcome.skipped, ElementsAre("callback actor 1 (a)"));
  EXPECT_EQ(outcome.times.size(), 3u);
}

TEST_F(callback_turns_test, CT_3_an_end_between_events_counts_with_the_next) {
  EXPECT_FALSE(lose(1));
  turns.begin(state);
  pass();
  EXPECT_THAT(turns.take_outcome().failures, IsEmpty()) << "not for b";
  turns.begin(report);
  EXPECT_THAT(pass(), ElementsAre("a", "c"));
  EXPECT_THAT(failures_of(turns.take_outcome()),
              ElementsAre(HasSubstr("actor 2 (b) has ended")));
}

TEST_F(callback_turns_test, CT_3_the_end_of_another_leaves_the_turn_open) {
  turns.begin(report);
  next();
  EXPECT_FALSE(lose(2));
  EXPECT_TRUE(turns.awaits(number));
  answer();
  EXPECT_THAT(pass(), ElementsAre("b"));
}

TEST_F(callback_turns_test, CT_3_an_exception_that_ends_it_counts_once) {
  turns.begin(report);
  next();
  answer({{ec::callback_failed, "off"}});
  EXPECT_FALSE(lose(0));
  pass();
  EXPECT_EQ(turns.take_outcome().failures.size(), 1u);
  turns.begin(report);
  EXPECT_THAT(pass(), ElementsAre("b", "c"));
  auto outcome = turns.take_outcome();
  EXPECT_THAT(outcome.failures, IsEmpty());
  EXPECT_THAT(outcome.skipped, ElementsAre("callback actor 1 (a)"));
}

TEST_F(callback_turns_test, CT_3_one_that_failed_and_ends_later_fails_again) {
  turns.begin(report);
  next();
  answer({{ec::storage, "no space left"}});
  pass();
  turns.take_outcome();
  turns.begin(report);
  next();
  EXPECT_TRUE(lose(0));
  EXPECT_EQ(turns.take_outcome().failures.size(), 1u);
}

TEST_F(callback_turns_test, CT_4_one_that_is_given_up_has_failed) {
  use(false, true);
  turns.begin(report);
  next();
  EXPECT_EQ(turns.current({}), "callback actor 1 (a) in after_report");
  EXPECT_FALSE(turns.give_up("50 s", {}, now));
  pass();
  auto outcome = turns.take_outcome();
  EXPECT_THAT(failures_of(outcome),
              ElementsAre("callback actor 1 (a) in after_report did not return "
                          "for 50 s; the run continues without it"));
  EXPECT_TRUE(outcome.abort);
  EXPECT_FALSE(lose(0)) << "it has failed already";
  turns.begin(report);
  EXPECT_THAT(pass(), ElementsAre("b", "c"));
  outcome = turns.take_outcome();
  EXPECT_THAT(outcome.failures, IsEmpty());
  EXPECT_THAT(outcome.skipped, ElementsAre("callback actor 1 (a)"));
}

TEST_F(callback_turns_test, CT_4_classes_are_given_up_together) {
  use(true);
  turns.begin(report);
  next();
  callback_turns::running_class slow{"callback 1 (slow)",
                                     "callback 1 (slow) in after_report"};
  EXPECT_EQ(turns.current(slow), slow.text);
  EXPECT_TRUE(turns.give_up("50 s", slow, now));
  EXPECT_THAT(pass(), ElementsAre("a", "b", "c"));
  auto outcome = turns.take_outcome();
  EXPECT_THAT(failures_of(outcome),
              ElementsAre(AllOf(HasSubstr("callback 1 (slow) in after_report "
                                          "did not return for 50 s"),
                                HasSubstr("thread is left behind"))));
  auto skipped = ElementsAre("callback 1 (slow) and those beside it");
  EXPECT_THAT(outcome.skipped, skipped);
  turns.begin(report);
  EXPECT_THAT(pass(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(turns.take_outcome().skipped, skipped);
}

TEST_F(callback_turns_test, CT_4_no_class_may_be_known_to_be_at_work) {
  use(true);
  turns.begin(report);
  next();
  EXPECT_TRUE(turns.give_up("50 s", {}, now));
  auto outcome = turns.take_outcome();
  EXPECT_THAT(failures_of(outcome),
              ElementsAre(HasSubstr("the thread of the callbacks did not")));
  EXPECT_THAT(outcome.skipped, ElementsAre("a callback and those beside it"));
}

TEST_F(callback_turns_test, CT_5_no_late_answer_is_awaited) {
  use(true);
  turns.begin(report);
  next();
  auto classes = number;
  EXPECT_TRUE(turns.awaits(classes));
  turns.give_up("50 s", {}, now);
  EXPECT_FALSE(turns.awaits(classes));
  next();
  auto first = number;
  EXPECT_TRUE(turns.awaits(first));
  EXPECT_FALSE(turns.awaits(classes));
  answer();
  EXPECT_FALSE(turns.awaits(first));
  next();
  EXPECT_FALSE(turns.awaits(first));
}

} // namespace
} // namespace troupe::internal
