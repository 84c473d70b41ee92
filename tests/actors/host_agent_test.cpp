// The host agent between its ranks and their worker group, and what happens
// when one of them is gone.

#include <csignal>

#include "tests/actors/worker_group_fixture.hpp"
#include "troupe/actors/agent_pulse.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;

/// An agent with two ranks, 4 and 5 of six, and a group that records.
class host_agent_test : public testing::Test {
protected:
  using fact = std::function<void()>;

  /// What the group was sent.
  struct group_record {
    std::vector<host_calls> calls;
    std::vector<rank_loop_ended> ended;
    std::vector<rank_exited> exited;
    std::vector<std::string> order; ///< Of all of it.
    std::vector<host_tick> ticks;
    caf::typed_response_promise<void> tick_answer; ///< Of the last tick.
  };

  using recorded_group_actor =
    worker_group_actor::extend<caf::result<void>(answer_oldest)>;

  static recorded_group_actor::behavior_type
  recorded_group(recorded_group_actor::pointer self,
                 std::shared_ptr<group_record> record) {
    auto note = [record](std::string what) {
      record->order.push_back(std::move(what));
    };
    return {
      [](const start_attempt&, const driver_actor&) {},
      [](const stop_attempt&) {},
      [](const preempt_attempt&) {},
      [](const agent_hello&, const caf::strong_actor_ptr&) {
        return host_accepted{};
      },
      [](const host_checked&) {},
      [record, self](const host_tick& x) -> caf::result<void> {
        record->ticks.push_back(x);
        record->tick_answer = self->make_response_promise<void>();
        return record->tick_answer;
      },
      [record](const answer_oldest& how) {
        if (how.refusal)
          record->tick_answer.deliver(to_caf(how.refusal));
        else
          record->tick_answer.deliver();
      },
      [](const agent_launched&) {},
      [](const launcher_said&) {},
      [](const launcher_ended&) {},
      [](const host_notice&) {},
      [](const host_warning&) {},
      [note](const rank_launched&) { note("launched"); },
      [note](const rank_launch_failed&) { note("launch failed"); },
      [note](const rank_ready&) { note("ready"); },
      [record, note](const host_calls& x) {
        note("calls");
        record->calls.push_back(x);
      },
      [record, note](const rank_loop_ended& x) {
        note("loop ended");
        record->ended.push_back(x);
      },
      [note](const rank_disconnected&) { note("disconnected"); },
      [record, note](const rank_exited& x) {
        note("exited");
        record->exited.push_back(x);
      },
      [note](const log_event&) { note("log"); },
      [](const get_checkpoints&) { return checkpoint_list{}; },
      [](const open_mailbox&, const postbox_actor& box) {
        return caf::actor_cast<caf::actor>(box);
      },
      [](const store_set&) {},
      [](const store_get&) { return std::string{}; },
      [](const store_add&) { return std::int64_t{0}; },
      [](const store_check&) { return false; },
      [](const store_wait&) {},
      [](const store_erase&) { return false; },
      [](const store_size&) { return std::int64_t{0}; },
      [](const store_compare_set&) { return std::string{}; },
    };
  }

  host_agent_test() {
    ranks.attempt = 3;
    ranks.agent = system.spawn(host_agent, host_agent_args{ranks.launcher});
    group = system.spawn(recorded_group, record);
    rank_facts facts{.run_id = "ab",
                     .attempt = 3,
                     .rank = 4,
                     .world_size = 6,
                     .local_world_size = 2,
                     .first_report = 10};
    auto second = facts;
    second.rank = 5;
    second.local_rank = 1;
    system.ask<void>(ranks.agent, start_ranks{3, {facts, second}, {}, {}},
                     group);
    ranks.rise(4);
    ranks.rise(5);
    record->order.clear();
  }

  /// What the group was sent since the last call.
  std::vector<std::string> told() { return std::exchange(record->order, {}); }

  stepped_system system;
  std::shared_ptr<group_record> record = std::make_shared<group_record>();
  worker_group_actor group;
  played_ranks ranks{system};
};

TEST_F(host_agent_test, sends_one_message_for_a_report_of_all_its_ranks) {
  auto first = ranks.report(5, 10);
  EXPECT_THAT(told(), ElementsAre());
  auto second = ranks.report(4, 10);
  EXPECT_THAT(told(), ElementsAre("calls"));
  ASSERT_EQ(record->calls[0].calls.size(), 2u);
  EXPECT_EQ(std::get<report>(record->calls[0].calls[0].what).value.rank, 5);
  send_anonymous(ranks.agent, reports_answered{3, {10, "/c", {}}, {}});
  system.settle();
  for (auto& x : {first, second}) {
    ASSERT_TRUE(x->value);
    EXPECT_EQ(x->value->checkpoint, "/c");
  }
}

// The clocks of hosts differ, and a rank that reports ahead takes its answers
// later.
TEST_F(host_agent_test, makes_what_is_left_one_deadline_by_its_own_clock) {
  auto now = [] { return unix_ms(std::chrono::system_clock::now()); };
  auto deadline_after = [&](std::uint64_t index, const stop_notice& stop) {
    auto first = ranks.report(4, index);
    auto second = ranks.report(5, index);
    send_anonymous(ranks.agent, reports_answered{3, {index, {}, stop}, {}});
    system.settle();
    EXPECT_TRUE(first->value && first->value->stop);
    EXPECT_TRUE(second->value && second->value->stop);
    auto result = first->value.value().stop.value().deadline_ms;
    EXPECT_EQ(second->value.value().stop.value().deadline_ms, result);
    return result;
  };
  auto preempted = stop_info::kind_type::preempted;
  auto earliest = now() + 30'000;
  auto deadline =
    deadline_after(10, {10, "SIGTERM", 77'000, preempted, 30'000});
  EXPECT_GE(deadline, earliest);
  EXPECT_LE(deadline, now() + 30'000);
  EXPECT_EQ(deadline_after(11, {10, "SIGTERM", 77'000, preempted, 20'000}),
            deadline);
  EXPECT_LT(deadline_after(12, {10, "SIGTERM", 60'000, preempted, 3000}),
            deadline);
}

// Those of all ranks of a host might not fit into one message.
TEST_F(host_agent_test, passes_large_calls_on_before_all_are_there) {
  metrics large{{"text", std::string(std::size_t{5} << 20, 'x')}};
  ranks.report(5, 10, large);
  EXPECT_THAT(told(), ElementsAre());
  ranks.report(5, 11, large);
  EXPECT_THAT(told(), ElementsAre("calls"));
  EXPECT_EQ(record->calls[0].calls.size(), 2u);
  ranks.report(5, 12, large);
  EXPECT_THAT(told(), ElementsAre()) << "what is passed on does not count";
}

TEST_F(host_agent_test, tells_all_that_came_before_it_answers_or_tells_more) {
  ranks.report(5, 10);
  auto seen = system.ask<host_snapshots>(ranks.agent, look_at_ranks{3, {5}});
  EXPECT_THAT(told(), ElementsAre("calls"));
  ASSERT_TRUE(seen->value);
  ASSERT_EQ(seen->value->ranks.size(), 2u);
  EXPECT_EQ(seen->value->ranks[1].rank, 5);
  send_anonymous(ranks.agent, reports_answered{3, {10, {}, {}}, {}});
  ranks.report(4, 11);
  ranks.end_loop(5);
  EXPECT_THAT(told(), ElementsAre("calls", "loop ended"));
}

TEST_F(host_agent_test, looks_at_no_process_when_a_loop_ends) {
  ranks.end_loop(4);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_EQ(record->ended[0].ranks.size(), 2u);
  EXPECT_EQ(ranks.launcher->looks, 0);
}

TEST_F(host_agent_test, holds_nothing_if_waits_have_a_short_limit) {
  rank_facts facts{.attempt = 4, .world_size = 2};
  auto second = facts;
  second.rank = 1;
  system.ask<void>(ranks.agent, start_ranks{4, {facts, second}, {}, {}, false},
                   group);
  ranks.attempt = 4;
  ranks.rise(0);
  ranks.rise(1);
  told();
  ranks.report(0, 0);
  EXPECT_THAT(told(), ElementsAre("calls"));
}

TEST_F(host_agent_test, knows_who_may_have_learned_of_the_end_from_an_answer) {
  auto waits = ranks.report(4, 10);
  error why{ec::stopped, "rank 0 failed"};
  ranks.launcher->ended = {5};
  send_anonymous(ranks.agent, end_ranks{3, why});
  system.settle();
  EXPECT_EQ(waits->failure, why);
  EXPECT_TRUE(ranks.asked_to_end(4));
  ranks.end_loop(4, {ec::rank_failed, "epoch 3 failed"});
  ranks.kill(4, SIGKILL);
  ranks.kill(5, SIGKILL);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_TRUE(record->ended[0].was_in_call);
  ASSERT_EQ(record->exited.size(), 2u);
  EXPECT_FALSE(record->exited[0].ended_before);
  EXPECT_TRUE(record->exited[1].ended_before);
}

TEST_F(host_agent_test, refuses_one_call_alone) {
  auto good = ranks.report(4, 10);
  auto bad = ranks.report(5, 12);
  EXPECT_THAT(told(), ElementsAre("calls"));
  send_anonymous(ranks.agent,
                 call_refused{3, 5, 12, {ec::protocol, "out of order"}});
  system.settle();
  EXPECT_EQ(bad->failure.code, ec::protocol);
  EXPECT_TRUE(good->pending());
  EXPECT_TRUE(ranks.report(0, 10)->failure) << "a rank of another host";
}

TEST_F(host_agent_test, takes_no_more_calls_once_the_attempt_is_over) {
  auto waits = ranks.report(4, 10);
  send_anonymous(ranks.agent, attempt_over{3});
  system.settle();
  EXPECT_EQ(waits->failure.code, ec::stopped);
  EXPECT_EQ(ranks.report(4, 11)->failure.code, ec::stopped);
}

TEST_F(worker_group_test, ends_with_its_only_agent_which_kills_the_ranks) {
  start_all();
  auto asked = system.ask<std::int64_t>(ranks.group, store_size{3});
  EXPECT_TRUE(asked->value);
  caf::anon_send_exit(ranks.agent, caf::exit_reason::kill);
  system.settle();
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  asked = system.ask<std::int64_t>(ranks.group, store_size{3});
  EXPECT_TRUE(asked->failure);
}

/// Two hosts with a rank each, which are threads.
class two_agents_test : public worker_group_test {
protected:
  void start() {
    plan.in_process = true;
    for (auto* agent : {&ranks.agent, &other})
      *agent = system.spawn(host_agent, host_agent_args{ranks.launcher});
    agent_facts own;
    own.incarnation = 100;
    ranks.group = system.spawn(
      worker_group, worker_group_args{.agent = ranks.agent, .plan = plan},
      host_roster{{{"", 0, 1, 1}, {"", 1, 1, 1}}, own, {}, "here"});
    agent_hello hello;
    hello.facts.incarnation = 1;
    hello.facts.host = "h1";
    system.ask<host_accepted>(ranks.group, hello,
                              caf::actor_cast<caf::strong_actor_ptr>(other));
    send_anonymous(ranks.group, host_checked{1, 1, {}, {}});
    driver = system.spawn(recorded_driver, record);
    send_anonymous(ranks.group, start_attempt{3, {}, 0}, driver);
    system.settle();
  }

  void lose_other() {
    caf::anon_send_exit(other, caf::exit_reason::kill);
    system.settle();
  }

  host_agent_actor other;
};

TEST_F(two_agents_test, the_ranks_of_one_that_is_gone_are_lost) {
  start();
  lose_other();
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(1));
  EXPECT_TRUE(record->failed.empty()) << "rank 0 is still there";
  ranks.exit(0);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
}

TEST_F(two_agents_test, one_that_is_gone_may_end_the_attempt_without_grace) {
  plan.stop_timeout = ms{0};
  start();
  lose_other();
  EXPECT_EQ(failure_of(1).kind, kind::lost);
}

/// The pulse of an agent.
class agent_pulse_test : public host_agent_test {
protected:
  agent_pulse_test() {
    agent_pulse_args args{group, 1, 7};
    args.refused = [this](const error& x) { refusals.push_back(x.message); };
    pulse = system.spawn(agent_pulse, std::move(args));
    system.settle();
  }

  void pass_seconds(int n) {
    for (int i = 0; i < n; ++i)
      system.pass(std::chrono::seconds{1});
  }

  void answer_tick(error refusal = {}) {
    send_anonymous(caf::actor_cast<recorded_group_actor>(group),
                   answer_oldest{std::move(refusal)});
    system.settle();
  }

  std::vector<std::string> refusals;
  agent_pulse_actor pulse;
};

// A driver that a signal has stopped for an hour finds one.
TEST_F(agent_pulse_test, sends_the_next_tick_a_second_after_an_answer) {
  ASSERT_EQ(record->ticks.size(), 1u);
  EXPECT_EQ(record->ticks[0].node_rank, 1u);
  EXPECT_EQ(record->ticks[0].incarnation, 7u);
  pass_seconds(3600);
  EXPECT_EQ(record->ticks.size(), 1u);
  answer_tick();
  EXPECT_EQ(record->ticks.size(), 1u);
  pass_seconds(1);
  EXPECT_EQ(record->ticks.size(), 2u);
  EXPECT_TRUE(refusals.empty());
}

TEST_F(agent_pulse_test, says_that_the_agent_was_replaced) {
  answer_tick({ec::stopped, "another has its place"});
  EXPECT_THAT(refusals, ElementsAre("another has its place"));
  pass_seconds(10);
  EXPECT_EQ(record->ticks.size(), 1u);
}

TEST_F(agent_pulse_test, says_nothing_about_the_end_of_the_run) {
  caf::anon_send_exit(group, caf::exit_reason::kill);
  pass_seconds(10);
  EXPECT_TRUE(refusals.empty());
}

TEST_F(worker_group_test, its_defect_kills_the_ranks) {
  start_all();
  caf::anon_send_exit(ranks.group, caf::exit_reason::kill);
  system.settle();
  EXPECT_THAT(ranks.launcher->killed, ElementsAre(0, 1));
  EXPECT_TRUE(ranks.asked_to_end(0));
}

} // namespace troupe::internal::test
