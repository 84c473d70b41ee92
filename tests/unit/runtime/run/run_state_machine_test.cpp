#include "troupe/runtime/run/run_state_machine.hpp"

#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace troupe {
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
    "none", "decide_size", "start_group", "stop_group", "preempt_group", "end"};
  return names.at(static_cast<std::size_t>(x));
}

/// "running none": where an event led, or "-" if it was refused.
std::string outcome_of(const expected<run_decision>& x) {
  return x ? std::string{to_string(x->to)} + ' ' + action_name(x->action.what)
           : "-";
}

run_state_machine machine_after(const std::vector<run_event>& events,
                                failure_config config = endless) {
  run_state_machine result{config};
  for (auto& event : events)
    EXPECT_TRUE(result.apply(event)) << name_of(event);
  return result;
}

const error start_error{ec::spawn, "rank 1 could not be forked"};
const error disk_error{ec::storage, "the disk is full"};

/// Every event, about the group of *attempt*.
std::array<run_event, 13> all_events(std::uint64_t attempt) {
  return {size_decided{2},
          size_undecided{},
          group_started{attempt},
          group_start_failed{attempt, start_error},
          ranks_finished{attempt},
          ranks_failed{attempt, failed({1})},
          group_stopped{attempt},
          group_stop_failed{attempt, {ec::timeout, "rank 0 cannot be killed"}},
          run_events::run_failed{disk_error},
          stop_requested{},
          abort_requested{},
          preempt_requested{},
          grace_over{attempt}};
}

struct situation {
  const char* name;
  std::vector<run_event> events;        // that lead there, attempt 0
  std::array<const char*, 13> expected; // in the order of all_events
};

constexpr auto stop = "shutting_down stop_group";
constexpr auto down = "shutting_down none";
constexpr auto abort_now = "aborted end";
constexpr auto no = "-";

const situation situations[] = {
  {"initializing",
   {},
   {"scheduling start_group", "initializing decide_size", no, no, no, no, no,
    no, stop, stop, abort_now, stop, no}},
  {"scheduling",
   {size_decided{2}},
   {no, no, "running none", "rescheduling decide_size", no,
    "restarting stop_group", no, no, stop, stop, abort_now, stop, no}},
  {"running",
   {size_decided{2}, group_started{0}},
   {"resizing stop_group", "running none", no, no, stop,
    "restarting stop_group", no, no, stop, stop, abort_now,
    "running preempt_group", no}},
  {"running, preempted",
   {size_decided{2}, group_started{0}, preempt_requested{}},
   {"running none", "running none", no, no, stop, stop, no, no, stop, stop,
    abort_now, "running preempt_group", stop}},
  {"restarting, the group is going",
   {size_decided{2}, group_started{0}, ranks_failed{0, failed({0})}},
   {no, no, no, no, "restarting none", "restarting none",
    "restarting decide_size", stop, down, down, abort_now, down, no}},
  {"restarting, the group is gone",
   {size_decided{2}, group_started{0}, ranks_failed{0, failed({0})},
    group_stopped{0}},
   {"scheduling start_group", "restarting decide_size", no, no, no, no, no, no,
    stop, stop, abort_now, stop, no}},
  {"resizing",
   {size_decided{2}, group_started{0}, size_decided{3}},
   {no, no, no, no, "resizing none", "resizing none", "scheduling start_group",
    stop, down, down, abort_now, down, no}},
  {"rescheduling",
   {size_decided{2}, group_start_failed{0, start_error}},
   {"scheduling start_group", "rescheduling decide_size", no, no, no, no, no,
    no, stop, stop, abort_now, stop, no}},
  {"shutting down to finished",
   {size_decided{2}, group_started{0}, ranks_finished{0}},
   {no, no, down, down, down, down, "finished end", "errored end", down, down,
    abort_now, down, no}},
  {"shutting down to errored",
   {size_decided{2}, group_started{0}, run_events::run_failed{disk_error}},
   {no, no, down, down, down, down, "errored end", "errored end", down, down,
    abort_now, down, no}},
  {"shutting down to aborted",
   {size_decided{2}, group_started{0}, stop_requested{}},
   {no, no, down, down, down, down, "aborted end", "errored end", down, down,
    abort_now, down, no}},
  {"shutting down to preempted",
   {size_decided{2}, group_started{0}, preempt_requested{}, grace_over{0}},
   {no, no, down, down, down, down, "preempted end", "errored end", down, down,
    abort_now, down, no}},
  {"finished",
   {size_decided{2}, group_started{0}, ranks_finished{0}, group_stopped{0}},
   {no, no, no, no, no, no, no, no, no, no, no, no, no}},
  {"errored",
   {run_events::run_failed{disk_error}, group_stopped{0}},
   {no, no, no, no, no, no, no, no, no, no, no, no, no}},
  {"aborted",
   {abort_requested{}},
   {no, no, no, no, no, no, no, no, no, no, no, no, no}},
  {"preempted",
   {preempt_requested{}, group_stopped{0}},
   {no, no, no, no, no, no, no, no, no, no, no, no, no}},
};

TEST(run_state_machine_test, ranks_that_heard_of_a_preemption_end_it) {
  auto machine = machine_after({size_decided{2}, group_started{0},
                                preempt_requested{{ec::stopped, "w"}},
                                ranks_finished{0, true}, group_stopped{0}});
  EXPECT_EQ(machine.state(), run_state::preempted);
  EXPECT_EQ(machine.reason().message, "w");
}

TEST(run_state_machine_test, ranks_that_were_done_before_they_heard_finish) {
  auto machine =
    machine_after({size_decided{2}, group_started{0}, preempt_requested{},
                   ranks_finished{0, false}, group_stopped{0}});
  EXPECT_EQ(machine.state(), run_state::finished);
}

// Their processes may need longer than the grace.
TEST(run_state_machine_test, ranks_that_were_done_before_the_grace_finish) {
  for (auto heard : {false, true}) {
    auto machine =
      machine_after({size_decided{2}, group_started{0}, preempt_requested{},
                     grace_over{0}, ranks_finished{0, heard}});
    EXPECT_EQ(machine.state(), run_state::shutting_down);
    EXPECT_TRUE(machine.apply(group_stopped{0}));
    EXPECT_EQ(machine.state(),
              heard ? run_state::preempted : run_state::finished);
    EXPECT_EQ(static_cast<bool>(machine.reason()), heard);
  }
}

TEST(run_state_machine_test, a_stop_in_the_grace_is_one_whoever_is_done) {
  auto machine =
    machine_after({size_decided{2}, group_started{0}, preempt_requested{},
                   stop_requested{}, ranks_finished{0}, group_stopped{0}});
  EXPECT_EQ(machine.state(), run_state::aborted);
}

TEST(run_state_machine_test, RSM_6_ranks_that_fail_while_they_leave_are_free) {
  auto machine = machine_after(
    {size_decided{2}, group_started{0}, preempt_requested{{ec::stopped, "w"}},
     ranks_failed{0, failed({1})}, group_stopped{0}});
  EXPECT_EQ(machine.state(), run_state::preempted);
  EXPECT_EQ(machine.policy().counts().ranks, 0);
  EXPECT_NE(machine.reason().message.find("rank 1"), std::string::npos);
}

TEST(run_state_machine_test, waits_if_ranks_fail_again_without_a_report) {
  run_state_machine machine{failure_policy{endless, [] { return 0.0; }}};
  auto fail = [&machine](std::uint64_t attempt) {
    EXPECT_TRUE(machine.apply(size_decided{2}));
    EXPECT_TRUE(machine.apply(group_started{attempt}));
    EXPECT_TRUE(machine.apply(ranks_failed{attempt, failed({0})}));
    return machine.apply(group_stopped{attempt})->action.delay.count();
  };
  EXPECT_EQ(fail(0), 0);
  EXPECT_EQ(fail(1), 100);
  EXPECT_EQ(fail(2), 200);
  machine.on_progress();
  EXPECT_EQ(fail(3), 0);
  EXPECT_EQ(fail(4), 100);
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
    for (std::size_t i : {2, 3, 4, 5, 6, 7, 12}) {
      auto machine = machine_after(row.events);
      auto decision = machine.apply(all_events(7)[i]);
      EXPECT_FALSE(decision) << row.name << " + " << name_of(all_events(7)[i]);
    }
  }
}

TEST(run_state_machine_test, raises_where_no_budget_is_left) {
  auto scheduling = machine_after({size_decided{2}}, {0, 0});
  EXPECT_EQ(outcome_of(scheduling.apply(group_start_failed{0, start_error})),
            stop);
  EXPECT_EQ(scheduling.outcome(), run_state::errored);
  EXPECT_EQ(scheduling.reason(), start_error);
  auto running = machine_after({size_decided{2}, group_started{0}}, {0, 0});
  auto decision = running.apply(ranks_failed{0, failed({1})});
  EXPECT_EQ(outcome_of(decision), stop);
  EXPECT_EQ(running.outcome(), run_state::errored);
  EXPECT_EQ(running.reason().code, ec::rank_failed);
  EXPECT_NE(running.reason().message.find("rank 1"), std::string::npos);
  EXPECT_EQ(decision->action.reason, running.reason());
}

TEST(run_state_machine_test,
     CTRL_1_an_undecided_size_leaves_the_run_where_it_is_with_no_group) {
  run_state_machine machine{endless};
  EXPECT_EQ(machine.begin().what, action_kind::decide_size);
  for (int i = 0; i < 3; ++i) {
    auto decision = machine.apply(size_undecided{});
    EXPECT_EQ(outcome_of(decision), "initializing decide_size");
    EXPECT_EQ(decision->action.delay, std::chrono::seconds{1});
  }
  EXPECT_EQ(machine.world_size(), 0);
  auto start = machine.apply(size_decided{3})->action;
  EXPECT_EQ(start.what, action_kind::start_group);
  EXPECT_EQ(start.world_size, 3);
  EXPECT_EQ(start.attempt, 0u);
  EXPECT_EQ(machine.apply(group_started{0})->to, run_state::running);
}

TEST(run_state_machine_test,
     CTRL_1_a_resize_to_the_same_size_makes_a_new_group) {
  auto machine = machine_after({size_decided{2}, group_started{0}});
  auto stopping = machine.apply(size_decided{2});
  EXPECT_EQ(stopping->to, run_state::resizing);
  EXPECT_EQ(stopping->action.attempt, 0u);
  auto start = machine.apply(group_stopped{0});
  EXPECT_EQ(start->to, run_state::scheduling);
  EXPECT_EQ(start->action.attempt, 1u);
  EXPECT_EQ(start->action.world_size, 2);
  EXPECT_EQ(machine.apply(group_started{1})->to, run_state::running);
}

TEST(run_state_machine_test,
     CTRL_2_failed_ranks_restart_the_group_even_in_another_size) {
  auto machine = machine_after({size_decided{2}, group_started{0}});
  auto stopping = machine.apply(ranks_failed{0, failed({1})});
  EXPECT_EQ(stopping->to, run_state::restarting);
  EXPECT_EQ(stopping->action.attempt, 0u);
  EXPECT_EQ(machine.attempt(), 1u);
  EXPECT_EQ(machine.apply(group_stopped{0})->action.delay.count(), 0);
  auto start = machine.apply(size_decided{4});
  EXPECT_EQ(start->action.attempt, 1u);
  EXPECT_EQ(start->action.world_size, 4);
  EXPECT_EQ(machine.apply(group_started{1})->to, run_state::running);
}

TEST(run_state_machine_test,
     CTRL_3_a_group_that_fails_to_start_is_started_again_later) {
  auto machine = machine_after({size_decided{2}});
  auto later = machine.apply(group_start_failed{0, start_error});
  EXPECT_EQ(later->to, run_state::rescheduling);
  EXPECT_EQ(later->action.delay, failure_policy::first_delay);
  EXPECT_EQ(later->action.reason, start_error);
  EXPECT_EQ(machine.apply(size_decided{2})->to, run_state::scheduling);
  EXPECT_EQ(machine.apply(group_started{1})->to, run_state::running);
}

TEST(run_state_machine_test, CTRL_7_a_failing_callback_ends_the_run_once) {
  auto machine = machine_after({size_decided{2}, group_started{0}});
  error thrown{ec::callback_failed, "callback 1 threw in after_report: x"};
  EXPECT_EQ(outcome_of(machine.apply(run_events::run_failed{thrown})), stop);
  EXPECT_EQ(outcome_of(machine.apply(run_events::run_failed{disk_error})),
            down);
  auto last = machine.apply(group_stopped{0});
  EXPECT_EQ(last->to, run_state::errored);
  EXPECT_EQ(last->action.reason, thrown); // RSM-5
  EXPECT_FALSE(machine.apply(run_events::run_failed{thrown}));
}

TEST(run_state_machine_test,
     RSM_1_gives_every_group_a_number_of_its_own_and_skips_none) {
  run_state_machine machine{endless, 5};
  EXPECT_EQ(machine.attempt(), 5u);
  EXPECT_EQ(machine.apply(size_decided{2})->action.attempt, 5u);
  EXPECT_TRUE(machine.apply(group_start_failed{5, start_error}));
  EXPECT_EQ(machine.attempt(), 6u);
  EXPECT_EQ(machine.apply(size_decided{2})->action.attempt, 6u);
  EXPECT_TRUE(machine.apply(group_started{6}));
  EXPECT_TRUE(machine.apply(ranks_failed{6, failed({0})}));
  EXPECT_EQ(machine.attempt(), 7u);
  EXPECT_TRUE(machine.apply(group_stopped{6}));
  EXPECT_EQ(machine.apply(size_decided{2})->action.attempt, 7u);
  EXPECT_TRUE(machine.apply(group_started{7}));
  EXPECT_TRUE(machine.apply(size_decided{3}));
  EXPECT_EQ(machine.apply(group_stopped{7})->action.attempt, 8u);
  EXPECT_TRUE(machine.apply(stop_requested{}));
  EXPECT_TRUE(machine.apply(group_stopped{8}));
  EXPECT_EQ(machine.attempt(), 8u);
  EXPECT_EQ(machine.attempts(), 4u);
}

TEST(run_state_machine_test, RSM_3_charges_two_faults_of_one_group_once) {
  auto machine = machine_after({size_decided{3}, group_started{0}}, {1, -1});
  EXPECT_TRUE(machine.apply(ranks_failed{0, failed({1})}));
  auto second = machine.apply(ranks_failed{0, failed({0, 2})});
  EXPECT_EQ(outcome_of(second), "restarting none");
  EXPECT_EQ(machine.policy().counts().ranks, 1);
  EXPECT_EQ(machine.failures().size(), 3u);
  EXPECT_TRUE(machine.apply(group_stopped{0}));
  EXPECT_FALSE(machine.apply(ranks_failed{0, failed({2})}));
  EXPECT_TRUE(machine.apply(size_decided{3}));
  EXPECT_FALSE(machine.apply(ranks_failed{0, failed({2})}));
  EXPECT_EQ(machine.policy().counts().ranks, 1);
}

TEST(run_state_machine_test, a_loop_that_fails_before_all_run_is_no_bad_start) {
  auto machine = machine_after({size_decided{2}}, {0, -1});
  EXPECT_EQ(outcome_of(machine.apply(ranks_failed{0, failed({0})})), stop);
  EXPECT_EQ(machine.policy().counts().ranks, 1);
  EXPECT_EQ(machine.policy().counts().starts, 0);
}

TEST(run_state_machine_test, RSM_5_a_failed_shutdown_keeps_the_first_error) {
  error stuck{ec::timeout, "rank 0 cannot be killed"};
  auto errored = machine_after({run_events::run_failed{disk_error}});
  EXPECT_TRUE(errored.apply(group_stop_failed{0, stuck}));
  EXPECT_EQ(errored.reason(), disk_error);
  auto finishing =
    machine_after({size_decided{1}, group_started{0}, ranks_finished{0}});
  EXPECT_TRUE(finishing.apply(group_stop_failed{0, stuck}));
  EXPECT_EQ(finishing.outcome(), run_state::errored);
  EXPECT_EQ(finishing.reason(), stuck);
}

TEST(run_state_machine_test, a_storage_error_in_the_shutdown_is_the_outcome) {
  auto machine =
    machine_after({size_decided{1}, group_started{0}, ranks_finished{0}});
  EXPECT_EQ(machine.outcome(), run_state::finished);
  EXPECT_TRUE(machine.apply(run_events::run_failed{disk_error}));
  EXPECT_EQ(machine.apply(group_stopped{0})->to, run_state::errored);
}

TEST(run_state_machine_test, a_stop_after_the_last_loop_changes_nothing) {
  auto machine =
    machine_after({size_decided{1}, group_started{0}, ranks_finished{0}});
  EXPECT_TRUE(machine.apply(stop_requested{}));
  EXPECT_EQ(machine.apply(group_stopped{0})->to, run_state::finished);
  EXPECT_FALSE(machine.reason());
}

TEST(run_state_machine_test, a_stop_while_the_group_goes_is_not_sent_twice) {
  auto machine = machine_after(
    {size_decided{2}, group_started{0}, ranks_failed{0, failed({0})}});
  EXPECT_EQ(outcome_of(machine.apply(stop_requested{})), down);
  auto last = machine.apply(group_stopped{0});
  EXPECT_EQ(last->to, run_state::aborted);
  EXPECT_EQ(last->action.reason.code, ec::stopped);
}

TEST(run_state_machine_test, refuses_a_group_without_ranks) {
  run_state_machine machine{endless};
  EXPECT_FALSE(machine.apply(size_decided{0}));
  EXPECT_FALSE(machine.apply(size_decided{-1}));
  EXPECT_EQ(machine.state(), run_state::initializing);
}

// RSM-1 to RSM-4 over random lives: whatever comes in, groups never overlap,
// attempts never go back, and an end is an end.
TEST(run_state_machine_test, keeps_its_invariants_over_random_events) {
  std::mt19937 random{20240229};
  std::set<run_state> seen;
  for (int life = 0; life < 2000; ++life) {
    run_state_machine machine{
      {static_cast<int>(random() % 4) - 1, static_cast<int>(random() % 4) - 1}};
    bool group_lives = false;
    std::uint64_t group = 0;
    std::set<std::uint64_t> groups;
    for (int step = 0; step < 60; ++step) {
      auto before = machine;
      // Mostly events of the current group; abort and stop are rare.
      auto events = all_events(random() % 10 == 0 ? random() % 3 : group);
      auto i = random() % (random() % 20 == 0 ? events.size() : 8);
      auto decision = machine.apply(events[i]);
      seen.insert(machine.state());
      if (!decision) {
        EXPECT_EQ(machine.state(), before.state());
        EXPECT_EQ(machine.attempt(), before.attempt());
        EXPECT_EQ(machine.reason(), before.reason());
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
        EXPECT_GE(decision->action.world_size, 1);
        group_lives = true;
        group = decision->action.attempt;
      }
      EXPECT_EQ(decision->action.what == action_kind::end,
                is_terminal(machine.state()));
      if (is_terminal(machine.state())) {
        EXPECT_EQ(machine.outcome(), machine.state());
        EXPECT_EQ(static_cast<bool>(machine.reason()),
                  machine.state() != run_state::finished);
      }
    }
  }
  EXPECT_EQ(seen.size(), 11u) << "not every state was visited";
}

} // namespace
} // namespace troupe
