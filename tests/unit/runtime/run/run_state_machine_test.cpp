#include "troupe/runtime/run/run_state_machine.hpp"

#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using namespace run_events;
using action_kind = run_action::kind;

constexpr failure_config endless{.max_failures = -1,
                                 .controller_failure_limit = -1};

std::map<int, rank_failure> failed(std::initializer_list<int> ranks) {
  std::map<int, rank_failure> result;
  for (auto rank : ranks)
    result[rank] = {.kind = rank_failure::kind_type::signal, .code = 9};
  return result;
}

std::string action_name(action_kind x) {
  static constexpr std::array names{
    "none", "wait", "start_group", "stop_group", "preempt_group", "end"};
  return names.at(static_cast<std::size_t>(x));
}

/// "running none": where an event led, or "-" if it was refused.
std::string outcome_of(const expected<run_decision>& x) {
  return x ? std::string{to_string(x->to)} + ' ' + action_name(x->action.what)
           : "-";
}

/// A machine that has begun and received *events*.
run_state_machine machine_after(const std::vector<run_event>& events,
                                failure_config config = endless) {
  run_state_machine result{config};
  result.begin();
  for (auto& event : events)
    EXPECT_TRUE(result.apply(event)) << name_of(event);
  return result;
}

const error start_error{ec::spawn, "rank 1 could not be forked"};
const error disk_error{ec::storage, "the disk is full"};

/// Every event, about the group of *attempt*; the wait is for the next one.
std::array<run_event, 11> all_events(std::uint64_t attempt) {
  return {wait_over{attempt + 1},
          ranks_started{attempt},
          group_start_failed{attempt, start_error},
          ranks_finished{attempt},
          ranks_failed{attempt, failed({1})},
          group_stopped{attempt},
          run_events::fatal_failure{disk_error},
          stop_requested{},
          preempt_requested{},
          grace_over{attempt},
          ranks_left{attempt, "host h1 leaves"}};
}

struct situation {
  const char* name;
  std::vector<run_event> events;        // that lead there, attempt 0
  std::array<const char*, 11> expected; // in the order of all_events
};

constexpr auto stop = "shutting_down stop_group";
constexpr auto down = "shutting_down none";
constexpr auto no = "-";

const situation situations[] = {
  {"scheduling",
   {},
   {no, "running none", "rescheduling wait", no, "restarting stop_group", no,
    stop, stop, stop, no, "restarting stop_group"}},
  {"running",
   {ranks_started{0}},
   {no, no, no, stop, "restarting stop_group", no, stop, stop,
    "running preempt_group", no, "restarting stop_group"}},
  {"running, preempted",
   {ranks_started{0}, preempt_requested{}},
   {no, no, no, stop, stop, no, stop, stop, "running preempt_group", stop,
    stop}},
  {"restarting, the group is going",
   {ranks_started{0}, ranks_failed{0, failed({0})}},
   {no, no, no, "restarting none", "restarting none", "scheduling start_group",
    down, down, down, no, "restarting none"}},
  {"rescheduling",
   {group_start_failed{0, start_error}},
   {"scheduling start_group", no, no, no, no, no, stop, stop, stop, no, no}},
  {"shutting down to finished",
   {ranks_started{0}, ranks_finished{0}},
   {no, down, down, down, down, "finished end", down, down, down, no, down}},
  {"shutting down to errored",
   {ranks_started{0}, run_events::fatal_failure{disk_error}},
   {no, down, down, down, down, "errored end", down, down, down, no, down}},
  {"shutting down to aborted",
   {ranks_started{0}, stop_requested{}},
   {no, down, down, down, down, "aborted end", down, down, down, no, down}},
  {"shutting down to preempted",
   {ranks_started{0}, preempt_requested{}, grace_over{0}},
   {no, down, down, down, down, "preempted end", down, down, down, no, down}},
  {"finished",
   {ranks_started{0}, ranks_finished{0}, group_stopped{0}},
   {no, no, no, no, no, no, no, no, no, no, no}},
  {"errored",
   {run_events::fatal_failure{disk_error}, group_stopped{0}},
   {no, no, no, no, no, no, no, no, no, no, no}},
  {"aborted",
   {stop_requested{}, group_stopped{0}},
   {no, no, no, no, no, no, no, no, no, no, no}},
  {"preempted",
   {preempt_requested{}, group_stopped{0}},
   {no, no, no, no, no, no, no, no, no, no, no}},
};

TEST(run_state_machine_test, takes_a_stop_before_it_begins) {
  run_state_machine machine{endless};
  EXPECT_EQ(outcome_of(machine.apply(stop_requested{})), stop);
  EXPECT_EQ(outcome_of(machine.apply(group_stopped{0})), "aborted end");
}

TEST(run_state_machine_test, ranks_that_learned_of_a_preemption_end_it) {
  auto machine =
    machine_after({ranks_started{0}, preempt_requested{{ec::stopped, "w"}},
                   ranks_finished{0, true}});
  auto end = machine.apply(group_stopped{0});
  EXPECT_EQ(outcome_of(end), "preempted end");
  EXPECT_EQ(end->action.reason.message, "w");
}

TEST(run_state_machine_test,
     ranks_that_were_done_before_they_learned_of_it_finish) {
  auto machine = machine_after({ranks_started{0}, preempt_requested{},
                                ranks_finished{0, false}, group_stopped{0}});
  EXPECT_EQ(machine.state(), run_state::finished);
}

// Their processes may need longer than the grace.
TEST(run_state_machine_test, ranks_that_were_done_before_the_grace_finish) {
  for (auto heard : {false, true}) {
    auto machine = machine_after({ranks_started{0}, preempt_requested{},
                                  grace_over{0}, ranks_finished{0, heard}});
    EXPECT_EQ(machine.state(), run_state::shutting_down);
    auto end = machine.apply(group_stopped{0});
    EXPECT_EQ(outcome_of(end), heard ? "preempted end" : "finished end");
    EXPECT_EQ(static_cast<bool>(end->action.reason), heard);
  }
}

TEST(run_state_machine_test,
     a_stop_in_the_grace_stays_a_stop_if_ranks_are_done) {
  auto machine =
    machine_after({ranks_started{0}, preempt_requested{}, stop_requested{},
                   ranks_finished{0}, group_stopped{0}});
  EXPECT_EQ(machine.state(), run_state::aborted);
}

TEST(run_state_machine_test, RSM_6_ranks_that_fail_while_they_leave_are_free) {
  auto machine =
    machine_after({ranks_started{0}, preempt_requested{{ec::stopped, "w"}},
                   ranks_failed{0, failed({1})}});
  auto end = machine.apply(group_stopped{0});
  EXPECT_EQ(outcome_of(end), "preempted end");
  EXPECT_EQ(machine.policy().counts().ranks, 0);
  EXPECT_NE(end->action.reason.message.find("rank 1"), std::string::npos);
}

TEST(run_state_machine_test, RSM_7_ranks_that_left_to_be_continued_are_free) {
  auto machine = machine_after({ranks_started{0}, ranks_left{0, "h1 leaves"}},
                               {.max_failures = 0});
  auto next = machine.apply(group_stopped{0});
  EXPECT_EQ(outcome_of(next), "scheduling start_group");
  EXPECT_EQ(next->action.attempt, 1u);
  EXPECT_EQ(machine.policy().counts().ranks, 0);
  EXPECT_TRUE(machine.failures().empty());
}

// Hosts that come and go by themselves must not keep a run from training, or
// from ending, for ever.
TEST(run_state_machine_test, ranks_that_leave_again_and_again_end_the_run) {
  auto machine = machine_after(
    {ranks_started{0}, ranks_failed{0, failed({1})}, group_stopped{0}},
    {.max_failures = 1});
  machine.on_progress();
  error why;
  for (std::uint64_t attempt = 1;; ++attempt) {
    ASSERT_LT(attempt, 100u);
    (void) machine.apply(wait_over{attempt}); // If it waits.
    ASSERT_TRUE(machine.apply(ranks_started{attempt}));
    auto left = machine.apply(ranks_left{attempt, "h1 is lost"});
    ASSERT_TRUE(left);
    why = left->action.reason;
    if (left->to == run_state::shutting_down)
      break;
    ASSERT_TRUE(machine.apply(group_stopped{attempt}));
  }
  EXPECT_EQ(machine.attempt(), 11u);
  EXPECT_EQ(why.code, ec::rank_failed);
  EXPECT_EQ(why.message,
            "h1 is lost; ranks have left 11 times in a row without a report in "
            "between");
  EXPECT_TRUE(machine.failures().empty());
}

TEST(run_state_machine_test, ranks_that_left_a_preempted_run_end_it) {
  auto machine =
    machine_after({ranks_started{0}, preempt_requested{{ec::stopped, "w"}},
                   ranks_left{0, "h1 leaves"}});
  auto end = machine.apply(group_stopped{0});
  EXPECT_EQ(outcome_of(end), "preempted end");
  EXPECT_EQ(end->action.reason.message, "w");
}

TEST(run_state_machine_test, waits_if_ranks_fail_again_without_a_report) {
  run_state_machine machine{failure_policy{endless, [] { return 0.0; }}};
  machine.begin();
  auto fail = [&machine](std::uint64_t attempt) {
    EXPECT_TRUE(machine.apply(ranks_started{attempt}));
    EXPECT_TRUE(machine.apply(ranks_failed{attempt, failed({0})}));
    auto action = machine.apply(group_stopped{attempt})->action;
    EXPECT_EQ(action.attempt, attempt + 1);
    if (action.what == action_kind::wait) {
      EXPECT_EQ(outcome_of(machine.apply(wait_over{attempt + 1})),
                "scheduling start_group");
    }
    return action.delay.count();
  };
  EXPECT_EQ(fail(0), 0);
  EXPECT_EQ(fail(1), 100);
  EXPECT_EQ(fail(2), 200);
  machine.on_progress();
  EXPECT_EQ(fail(3), 0);
  EXPECT_EQ(fail(4), 100);
}

TEST(run_state_machine_test, a_wait_that_a_stop_ended_starts_nothing) {
  auto machine =
    machine_after({group_start_failed{0, start_error}, stop_requested{}});
  EXPECT_FALSE(machine.apply(wait_over{1}));
  EXPECT_EQ(outcome_of(machine.apply(group_stopped{0})), "aborted end");
}

TEST(run_state_machine_test, answers_every_event_in_every_state) {
  for (auto& row : situations) {
    for (std::size_t i = 0; i < row.expected.size(); ++i) {
      auto machine = machine_after(row.events);
      auto before = machine.state();
      auto event = all_events(0)[i];
      auto decision = machine.apply(event);
      EXPECT_EQ(outcome_of(decision), row.expected[i])
        << row.name << " + " << name_of(event);
      if (decision) {
        EXPECT_EQ(decision->from, before);
        EXPECT_EQ(decision->to, machine.state());
      } else { // RSM-4
        EXPECT_EQ(decision.error().code, ec::protocol);
        EXPECT_EQ(machine.state(), before);
      }
    }
  }
}

TEST(run_state_machine_test, RSM_4_refuses_events_of_another_attempt) {
  for (auto& row : situations) {
    for (std::size_t i : {0, 1, 2, 3, 4, 5, 9, 10}) {
      auto machine = machine_after(row.events);
      auto decision = machine.apply(all_events(7)[i]);
      EXPECT_FALSE(decision) << row.name << " + " << name_of(all_events(7)[i]);
    }
  }
}

TEST(run_state_machine_test, raises_where_no_budget_is_left) {
  auto scheduling = machine_after({}, {0, 0});
  auto decision = scheduling.apply(group_start_failed{0, start_error});
  EXPECT_EQ(outcome_of(decision), stop);
  EXPECT_EQ(decision->action.reason, start_error);
  auto running = machine_after({ranks_started{0}}, {0, 0});
  decision = running.apply(ranks_failed{0, failed({1})});
  EXPECT_EQ(outcome_of(decision), stop);
  EXPECT_EQ(decision->action.reason.code, ec::rank_failed);
  EXPECT_NE(decision->action.reason.message.find("rank 1"), std::string::npos);
}

TEST(run_state_machine_test, CTRL_1_starts_the_first_group_when_it_begins) {
  run_state_machine machine{endless};
  EXPECT_EQ(machine.state(), run_state::initializing);
  auto decision = machine.begin();
  EXPECT_EQ(decision.from, run_state::initializing);
  EXPECT_EQ(decision.to, run_state::scheduling);
  EXPECT_EQ(decision.action.what, action_kind::start_group);
  EXPECT_EQ(decision.action.attempt, 0u);
  EXPECT_EQ(machine.apply(ranks_started{0})->to, run_state::running);
}

// The thread that keeps the journal durable may be ahead of the start.
TEST(run_state_machine_test, a_run_that_ended_before_it_begins_has_no_group) {
  for (run_event event : {run_event{run_events::fatal_failure{disk_error}},
                          run_event{stop_requested{}}}) {
    run_state_machine machine{endless};
    EXPECT_EQ(outcome_of(machine.apply(event)), stop);
    EXPECT_EQ(outcome_of(machine.begin()), down);
    auto end = machine.apply(group_stopped{0});
    ASSERT_TRUE(end);
    EXPECT_EQ(end->action.what, action_kind::end);
    auto begun = machine.begin();
    EXPECT_EQ(begun.to, end->to);
    EXPECT_EQ(begun.action.what, action_kind::none);
  }
}

TEST(run_state_machine_test, CTRL_2_failed_ranks_restart_the_group) {
  auto machine = machine_after({ranks_started{0}});
  auto stopping = machine.apply(ranks_failed{0, failed({1})});
  EXPECT_EQ(stopping->to, run_state::restarting);
  EXPECT_EQ(stopping->action.attempt, 0u);
  EXPECT_EQ(machine.attempt(), 1u);
  auto start = machine.apply(group_stopped{0});
  EXPECT_EQ(start->from, run_state::restarting);
  EXPECT_EQ(outcome_of(start), "scheduling start_group");
  EXPECT_EQ(start->action.attempt, 1u);
  EXPECT_EQ(machine.apply(ranks_started{1})->to, run_state::running);
}

TEST(run_state_machine_test,
     CTRL_3_a_group_that_fails_to_start_is_started_again_later) {
  auto machine = machine_after({});
  auto later = machine.apply(group_start_failed{0, start_error});
  EXPECT_EQ(later->to, run_state::rescheduling);
  EXPECT_EQ(later->action.delay, failure_policy::delay.first);
  EXPECT_EQ(later->action.reason, start_error);
  EXPECT_EQ(machine.apply(wait_over{1})->to, run_state::scheduling);
  EXPECT_EQ(machine.apply(ranks_started{1})->to, run_state::running);
}

TEST(run_state_machine_test, CTRL_7_a_failing_callback_ends_the_run_once) {
  auto machine = machine_after({ranks_started{0}});
  error thrown{ec::callback_failed, "callback 1 threw in after_report: x"};
  EXPECT_EQ(outcome_of(machine.apply(run_events::fatal_failure{thrown})), stop);
  EXPECT_EQ(outcome_of(machine.apply(run_events::fatal_failure{disk_error})),
            down);
  auto last = machine.apply(group_stopped{0});
  EXPECT_EQ(last->to, run_state::errored);
  EXPECT_EQ(last->action.reason, thrown); // RSM-5
  EXPECT_FALSE(machine.apply(run_events::fatal_failure{thrown}));
}

TEST(run_state_machine_test,
     RSM_1_gives_every_group_a_number_of_its_own_and_skips_none) {
  run_state_machine machine{endless, 5};
  EXPECT_EQ(machine.attempt(), 5u);
  EXPECT_EQ(machine.begin().action.attempt, 5u);
  EXPECT_TRUE(machine.apply(group_start_failed{5, start_error}));
  EXPECT_EQ(machine.attempt(), 6u);
  EXPECT_FALSE(machine.apply(wait_over{5}));
  EXPECT_EQ(machine.apply(wait_over{6})->action.attempt, 6u);
  EXPECT_TRUE(machine.apply(ranks_started{6}));
  EXPECT_TRUE(machine.apply(ranks_failed{6, failed({0})}));
  EXPECT_EQ(machine.attempt(), 7u);
  EXPECT_EQ(machine.apply(group_stopped{6})->action.attempt, 7u);
  EXPECT_TRUE(machine.apply(ranks_started{7}));
  EXPECT_TRUE(machine.apply(stop_requested{}));
  EXPECT_TRUE(machine.apply(group_stopped{7}));
  EXPECT_EQ(machine.attempt(), 7u);
}

TEST(run_state_machine_test, RSM_3_charges_two_faults_of_one_group_once) {
  auto machine = machine_after({ranks_started{0}}, {1, -1});
  EXPECT_TRUE(machine.apply(ranks_failed{0, failed({1})}));
  auto second = machine.apply(ranks_failed{0, failed({0, 2})});
  EXPECT_EQ(outcome_of(second), "restarting none");
  EXPECT_EQ(machine.policy().counts().ranks, 1);
  EXPECT_EQ(machine.failures().size(), 3u);
  EXPECT_TRUE(machine.apply(group_stopped{0}));
  EXPECT_FALSE(machine.apply(ranks_failed{0, failed({2})}));
  EXPECT_EQ(machine.policy().counts().ranks, 1);
}

TEST(run_state_machine_test,
     a_loop_that_fails_before_all_run_is_not_a_failed_start) {
  auto machine = machine_after({}, {0, -1});
  EXPECT_EQ(outcome_of(machine.apply(ranks_failed{0, failed({0})})), stop);
  EXPECT_EQ(machine.policy().counts().ranks, 1);
  EXPECT_EQ(machine.policy().counts().starts, 0);
}

TEST(run_state_machine_test, a_storage_error_in_the_shutdown_is_the_outcome) {
  auto machine = machine_after({ranks_started{0}, ranks_finished{0}});
  EXPECT_TRUE(machine.apply(run_events::fatal_failure{disk_error}));
  EXPECT_EQ(machine.apply(group_stopped{0})->to, run_state::errored);
}

TEST(run_state_machine_test, a_stop_after_the_last_loop_changes_nothing) {
  auto machine = machine_after({ranks_started{0}, ranks_finished{0}});
  EXPECT_TRUE(machine.apply(stop_requested{}));
  auto end = machine.apply(group_stopped{0});
  EXPECT_EQ(outcome_of(end), "finished end");
  EXPECT_FALSE(end->action.reason);
}

TEST(run_state_machine_test, a_stop_while_the_group_ends_is_not_sent_twice) {
  auto machine =
    machine_after({ranks_started{0}, ranks_failed{0, failed({0})}});
  EXPECT_EQ(outcome_of(machine.apply(stop_requested{})), down);
  auto last = machine.apply(group_stopped{0});
  EXPECT_EQ(last->to, run_state::aborted);
  EXPECT_EQ(last->action.reason.code, ec::stopped);
}

// RSM-1 to RSM-4 over random events: whatever comes in, groups never overlap,
// attempts never go back, and an end is an end.
TEST(run_state_machine_test, keeps_its_invariants_over_random_events) {
  std::mt19937 random{20240229};
  std::set<run_state> seen;
  for (int run = 0; run < 2000; ++run) {
    run_state_machine machine{
      {static_cast<int>(random() % 4) - 1, static_cast<int>(random() % 4) - 1}};
    machine.begin();
    bool group_lives = true;
    std::uint64_t group = 0;
    std::set<std::uint64_t> groups{0};
    for (int step = 0; step < 60; ++step) {
      auto before = machine;
      // Mostly events of the current group; what ends the run is rare.
      auto events = all_events(random() % 10 == 0 ? random() % 3 : group);
      auto i = random() % (random() % 20 == 0 ? events.size() : 6);
      auto decision = machine.apply(events[i]);
      seen.insert(machine.state());
      if (!decision) {
        EXPECT_EQ(machine.state(), before.state());
        EXPECT_EQ(machine.attempt(), before.attempt());
        continue;
      }
      EXPECT_FALSE(is_terminal(before.state()));
      EXPECT_GE(machine.attempt(), before.attempt());
      if (std::holds_alternative<group_stopped>(events[i])
          || std::holds_alternative<group_start_failed>(events[i]))
        group_lives = false;
      if (decision->action.what == action_kind::start_group) {
        EXPECT_FALSE(group_lives);
        EXPECT_TRUE(groups.insert(decision->action.attempt).second);
        group_lives = true;
        group = decision->action.attempt;
      }
      EXPECT_EQ(decision->action.what == action_kind::end,
                is_terminal(machine.state()));
      if (is_terminal(machine.state())) {
        EXPECT_EQ(static_cast<bool>(decision->action.reason),
                  machine.state() != run_state::finished);
      }
    }
  }
  EXPECT_EQ(seen.size(), 9u) << "not every state was visited";
}

} // namespace
} // namespace troupe::internal
