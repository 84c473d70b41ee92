// The worker group as the agents of other hosts come and go.

#include <csignal>

#include "tests/actors/joining_host_fixture.hpp"
#include "troupe/actors/agent_pulse.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal::test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

postbox_actor::behavior_type quiet_box() {
  return {[](const mail&) {}, [](const mail_dropped&) {}};
}

} // namespace

TEST_F(joining_host_test, ranks_start_once_all_hosts_are_here) {
  start();
  EXPECT_TRUE(ranks.launcher->launched.empty());
  auto settings = join(1);
  EXPECT_EQ(settings.node_rank, 1u);
  EXPECT_EQ(settings.run_path, plan.run_path);
  EXPECT_EQ(settings.token, 17u);
  ASSERT_EQ(ranks.launcher->launched.size(), 1u);
  ASSERT_EQ(elsewhere->launched.size(), 1u);
  EXPECT_EQ(elsewhere->launched[0].rank, 1);
}

TEST_F(joining_host_test, ranks_learn_the_names_and_addresses_of_their_hosts) {
  start();
  join(1);
  ASSERT_EQ(ranks.launcher->prepared.size(), 1u);
  EXPECT_EQ(ranks.launcher->prepared[0].host, "h0");
  EXPECT_EQ(ranks.launcher->prepared[0].host_address, "10.0.0.1");
  ASSERT_EQ(elsewhere->prepared.size(), 1u);
  EXPECT_EQ(elsewhere->prepared[0].host, "h1");
  EXPECT_EQ(elsewhere->prepared[0].host_address, "10.0.0.2");
}

TEST_F(joining_host_test, a_clock_that_differs_is_shown_and_does_not_matter) {
  start();
  clock -= std::chrono::hours{2};
  join(1);
  EXPECT_THAT(notes, HasSubstr("the clock of host h1 is 7"));
  EXPECT_THAT(notes, HasSubstr(" s behind the driver's"));
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(joining_host_test, a_clock_is_not_blamed_for_the_drivers_standstill) {
  start();
  pass_seconds(1);
  system.pass(std::chrono::seconds{90}); // A signal stopped the driver.
  clock -= std::chrono::seconds{90};     // When the hello came.
  join(1);
  EXPECT_THAT(notes, Not(HasSubstr("the clock of")));
}

TEST_F(joining_host_test, tells_of_two_agents_on_one_machine) {
  start();
  host = "h0"; // That of the driver.
  join(1);
  EXPECT_THAT(notes, HasSubstr("h0 (host 0) and h0 (host 1) run on one"));
}

// The first one asks again, since its storage was full, and gets another place.
TEST_F(joining_host_test, tells_of_two_agents_on_one_machine_once_both_are_in) {
  spawn_group({{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 1, 1}},
               own_facts(),
               host_limits{.join = ms{1500}},
               "10.0.0.1 port 7"});
  start();
  join(1, {ec::storage, "no space left"});
  auto first = other;
  join(2);
  EXPECT_THAT(notes, Not(HasSubstr("run on one machine")));
  agent_hello hello;
  hello.facts.incarnation = 1;
  hello.facts.host = "h1";
  hello.facts.boot = "b0";
  hello.facts.clock_ms = unix_ms(clock);
  auto answer = system.ask<host_accepted>(
    ranks.group, hello, caf::actor_cast<caf::strong_actor_ptr>(first));
  ASSERT_TRUE(answer->value);
  EXPECT_THAT(notes, HasSubstr("run on one machine"));
}

class chosen_network_test : public joining_host_test {
protected:
  chosen_network_test() : joining_host_test("10.1.0.0/16") {}
};

TEST_F(chosen_network_test, ranks_get_the_addresses_there) {
  start();
  address = "10.1.0.2";
  EXPECT_EQ(join(1).network_interface, "10.1.0.0/16");
  ASSERT_EQ(ranks.launcher->prepared.size(), 1u);
  EXPECT_EQ(ranks.launcher->prepared[0].host_address, "10.1.0.1");
  ASSERT_EQ(elsewhere->prepared.size(), 1u);
  EXPECT_EQ(elsewhere->prepared[0].host_address, "10.1.0.2");
}

TEST_F(joining_host_test, a_host_that_is_missing_ends_the_run) {
  start();
  pass_seconds(3);
  ASSERT_EQ(record->failed.size(), 1u);
  EXPECT_TRUE(record->failed[0].is_final);
  EXPECT_FALSE(record->failed[0].started);
  EXPECT_THAT(record->failed[0].reason.message,
              HasSubstr("host 1: no agent has connected to 10.0.0.1 port 7"));
}

TEST_F(joining_host_test, a_host_with_a_problem_has_no_ranks) {
  start();
  join(1, {ec::storage, "read-only"});
  EXPECT_TRUE(ranks.launcher->launched.empty());
  join(2);
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
}

TEST_F(joining_host_test, an_agent_whose_storage_fails_asks_again) {
  start();
  auto full = [this] { join(1, {ec::storage, "no space left"}); };
  full();
  full();
  EXPECT_EQ(notes.find("no space left"), notes.rfind("no space left"))
    << "it is shown once";
  EXPECT_NE(notes.find("no space left"), notes.npos);
  EXPECT_TRUE(record->failed.empty());
  join(1);
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
}

TEST_F(joining_host_test,
       says_once_what_is_odd_about_an_agent_that_asks_again) {
  start();
  agent_hello hello;
  hello.facts.incarnation = 1;
  hello.facts.host = "h1";
  hello.facts.clock_ms = unix_ms(clock - std::chrono::hours{2});
  elsewhere = std::make_shared<recorded_launcher>();
  other = system.spawn(host_agent, host_agent_args{elsewhere});
  for (auto problem : {error{ec::storage, "no space left"}, error{}}) {
    EXPECT_TRUE(
      system
        .ask<host_accepted>(ranks.group, hello,
                            caf::actor_cast<caf::strong_actor_ptr>(other))
        ->value);
    system.ask<void>(ranks.group, host_checked{1, 1, problem, {}});
  }
  EXPECT_EQ(elsewhere->launched.size(), 1u);
  EXPECT_NE(notes.find("the clock of"), notes.npos);
  EXPECT_EQ(notes.find("the clock of"), notes.rfind("the clock of"));
}

TEST_F(joining_host_test, an_agent_without_a_place_is_asked_when_one_is_free) {
  start();
  join(1);
  auto asked = 0;
  auto spare =
    system.spawn(host_agent, host_agent_args{elsewhere, [&asked] { ++asked; }});
  agent_hello hello;
  hello.facts.incarnation = 2;
  hello.facts.host = "h2";
  hello.facts.clock_ms = unix_ms(clock);
  auto ask = [&] {
    return system.ask<host_accepted>(
      ranks.group, hello, caf::actor_cast<caf::strong_actor_ptr>(spare));
  };
  EXPECT_EQ(ask()->failure.code, ec::conflict);
  EXPECT_EQ(asked, 0);
  lose();
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(ask()->value);
  ranks.exit(0);
  start(4);
  EXPECT_EQ(asked, 1) << "it has a place";
}

TEST_F(joining_host_test, the_host_of_the_driver_may_have_no_ranks) {
  caf::anon_send_exit(ranks.group, caf::exit_reason::user_shutdown);
  system.settle();
  ranks.agent = system.spawn(host_agent, host_agent_args{ranks.launcher});
  plan.world = {1, 1};
  worker_group_args args;
  args.agent = ranks.agent;
  args.plan = plan;
  ranks.group = system.spawn(
    worker_group, std::move(args),
    host_roster{
      {{"", 0, 0, 1}, {"", 0, 1, 1}}, own_facts(), {}, "10.0.0.1 port 7"});
  start();
  join(1);
  played_ranks theirs{system};
  theirs.attempt = 3;
  theirs.agent = other;
  theirs.launcher = elsewhere;
  theirs.rise(0);
  auto answer = theirs.report(0, 0);
  answer_batch();
  EXPECT_TRUE(answer->value);
  // Its first rank is on no host of the driver: it can map no memory of its.
  postbox_actor box = system.spawn(quiet_box);
  EXPECT_TRUE(
    system.ask<caf::actor>(other, open_mailbox{3, 0, 1, 4}, box)->value);
  ASSERT_EQ(record->mailboxes.size(), 1u);
  EXPECT_FALSE(record->mailboxes[0].is_near);
  theirs.finish(0);
  EXPECT_EQ(record->ended.size(), 1u);
}

TEST_F(joining_host_test, ranks_of_the_drivers_host_map_its_memory) {
  played_ranks theirs{system};
  start_with(theirs);
  postbox_actor box = system.spawn(quiet_box);
  system.ask<caf::actor>(ranks.agent, open_mailbox{3, 0, 2, 4}, box);
  system.ask<caf::actor>(other, open_mailbox{3, 1, 2, 4}, box);
  ASSERT_EQ(record->mailboxes.size(), 2u);
  EXPECT_TRUE(record->mailboxes[0].is_near);
  EXPECT_FALSE(record->mailboxes[1].is_near);
}

TEST_F(joining_host_test, a_stop_ends_the_wait_for_hosts) {
  start();
  stop();
  EXPECT_EQ(record->ended.size(), 1u);
  join(1);
  pass_seconds(3);
  EXPECT_TRUE(ranks.launcher->launched.empty());
  EXPECT_TRUE(record->failed.empty());
}

TEST_F(joining_host_test, a_lost_host_ends_the_attempt_and_the_next_waits) {
  start();
  join(1);
  lose();
  ranks.exit(0);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
  join(2);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(joining_host_test, a_host_may_come_back_before_the_attempt_is_over) {
  start();
  join(1);
  lose();
  join(2);
  EXPECT_TRUE(elsewhere->launched.empty());
  ranks.exit(0);
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  EXPECT_EQ(elsewhere->launched.size(), 1u);
}

TEST_F(joining_host_test, a_host_whose_agent_ticks_stays_for_hours) {
  join(1);
  pass_alive(7200, 1);
  EXPECT_TRUE(cut_off.empty());
  EXPECT_THAT(notes, Not(HasSubstr("answer")));
}

TEST_F(joining_host_test, a_short_silence_is_shown_and_costs_nothing) {
  start();
  join(1);
  pass_alive(2, 1);
  pass_seconds(4);
  EXPECT_THAT(notes, HasSubstr("host h1 has not answered for 3 s"));
  EXPECT_THAT(notes, Not(HasSubstr("answers again")));
  EXPECT_TRUE(tick(1)->value);
  EXPECT_THAT(notes, HasSubstr("host h1 answers again"));
  pass_alive(20, 1);
  EXPECT_TRUE(record->failed.empty());
  EXPECT_TRUE(cut_off.empty());
}

TEST_F(joining_host_test, a_host_that_is_silent_for_long_is_lost_and_fenced) {
  start();
  join(1);
  pass_seconds(9);
  EXPECT_TRUE(cut_off.empty());
  pass_seconds(1);
  EXPECT_THAT(cut_off, ElementsAre(other));
  EXPECT_THAT(abandoned, ElementsAre("h1"));
  EXPECT_THAT(events, ElementsAre(HasSubstr("host_joined"),
                                  AllOf(HasSubstr("host_lost"), HasSubstr("h1"),
                                        HasSubstr("did not answer for 10 s"))));
  // The agent takes no message: its rank is given up without an answer.
  ranks.exit(0);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(failure_of(1).what,
              HasSubstr("host h1 is lost: it did not answer for 10 s"));
}

// N6: what a frozen host sends after its thaw, before it finds its connection
// closed.
TEST_F(joining_host_test, nothing_of_a_fenced_host_counts_after_its_thaw) {
  start();
  join(1);
  pass_seconds(10);
  ranks.exit(0);
  auto first = other;
  EXPECT_EQ(tick(1)->failure.code, ec::stopped);
  send_anonymous(ranks.group, start_attempt{4, {}, 0}, driver);
  system.settle();
  join(2); // The replacement.
  ranks.attempt = 4;
  ASSERT_EQ(elsewhere->launched.size(), 1u);
  host_calls late{3, {}};
  late.calls.emplace_back().what = report{3, {1, 0, {{"x", 1}}, {}}};
  send_anonymous(ranks.group, late);
  send_anonymous(ranks.group, rank_exited{3, 1, {}});
  send_anonymous(ranks.group, rank_loop_ended{3, {3, 1}, false, {}});
  system.settle();
  EXPECT_FALSE(state().attempt->tracker.gone(1));
  EXPECT_FALSE(state().attempt->tracker.loop_over(1));
  EXPECT_TRUE(record->batches.empty());
  EXPECT_EQ(record->failed.size(), 1u);
  // Its end, of which the group learns now, is not that of the replacement.
  caf::anon_send_exit(first, caf::exit_reason::remote_link_unreachable);
  system.settle();
  pass_alive(20, 2);
  EXPECT_EQ(record->failed.size(), 1u);
  EXPECT_EQ(tick(1)->failure.code, ec::stopped);
}

TEST_F(joining_host_test, the_hosts_are_not_blamed_for_the_drivers_standstill) {
  start();
  join(1);
  pass_alive(5, 1);
  system.pass(std::chrono::hours{1}); // A signal stopped the driver.
  pass_alive(5, 1);
  EXPECT_TRUE(record->failed.empty());
  EXPECT_THAT(notes, Not(HasSubstr("answered")));
}

TEST_F(joining_host_test, the_pulse_of_an_agent_keeps_its_host) {
  start();
  join(1);
  auto pulse = system.spawn(agent_pulse, agent_pulse_args{ranks.group, 1, 1});
  pass_seconds(60);
  EXPECT_TRUE(cut_off.empty());
  caf::anon_send_exit(pulse, caf::exit_reason::kill);
  pass_seconds(11);
  EXPECT_THAT(cut_off, ElementsAre(other));
}

TEST_F(joining_host_test, a_notice_lets_all_ranks_save_first) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(30'000);
  auto mine = ranks.report(0, 0);
  auto other_answer = theirs.report(1, 0);
  answer_batch();
  for (auto& answer : {mine, other_answer}) {
    ASSERT_TRUE(answer->value);
    ASSERT_TRUE(answer->value->stop);
    EXPECT_EQ(answer->value->stop->index, 0u);
    EXPECT_EQ(answer->value->stop->kind, stop_info::kind_type::continues);
    EXPECT_THAT(answer->value->stop->reason, HasSubstr("host h1 is about to"));
  }
  ranks.report(0, 1); // Its last checkpoint.
  theirs.report(1, 1);
  answer_batch();
  ranks.finish(0);
  theirs.finish(1);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_FALSE(record->ended[0].stopped);
  EXPECT_NE(record->ended[0].left_for, "");
  // Its agent is let go, and the next attempt waits for another one.
  EXPECT_FALSE(state().agents->contains(1));
  send_anonymous(ranks.group, start_attempt{4, {}, 2}, driver);
  system.settle();
  EXPECT_EQ(ranks.launcher->launched.size(), 1u);
  join(2);
  EXPECT_EQ(ranks.launcher->launched.size(), 2u);
}

TEST_F(joining_host_test, ranks_that_stay_too_long_are_ended_for_the_next) {
  played_ranks theirs{system};
  start_with(theirs);
  expect_ended_for(theirs);
}

// The driver has not asked for this end, and waits for one that it can act on.
TEST_F(joining_host_test, ranks_of_a_run_that_is_done_are_ended_for_the_host) {
  played_ranks theirs{system};
  start_with(theirs);
  record->stop = stop_notice{0, "enough", 0, stop_info::kind_type::finished};
  ranks.report(0, 0);
  theirs.report(1, 0);
  answer_batch();
  expect_ended_for(theirs);
}

TEST_F(joining_host_test, ranks_of_a_preempted_run_are_ended_for_the_host) {
  played_ranks theirs{system};
  start_with(theirs);
  send_anonymous(ranks.group, preempt_attempt{3, "SIGTERM", 0});
  expect_ended_for(theirs);
}

TEST_F(joining_host_test, loops_that_returned_left_for_no_host) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(20'000);
  ranks.finish(0);
  theirs.end_loop(1);
  pass_alive(15, 1);
  theirs.exit(1);
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_FALSE(record->ended[0].stopped);
  EXPECT_EQ(record->ended[0].left_for, "");
}

TEST_F(joining_host_test, a_host_lost_after_its_loops_returned_costs_nothing) {
  played_ranks theirs{system};
  start_with(theirs);
  theirs.end_loop(1);
  lose();
  EXPECT_FALSE(ranks.asked_to_end(0));
  ranks.finish(0);
  EXPECT_TRUE(record->failed.empty());
  ASSERT_EQ(record->ended.size(), 1u);
  EXPECT_FALSE(record->ended[0].stopped);
}

TEST_F(joining_host_test, ranks_lost_with_a_host_that_leaves_have_not_failed) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(20'000);
  lose();
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_NE(record->failed[0].left_for, "");
}

// A host that ends may kill its ranks before its agent.
TEST_F(joining_host_test, ranks_killed_on_a_host_that_leaves_have_not_failed) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(20'000);
  theirs.kill(1, SIGKILL);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_NE(record->failed[0].left_for, "");
}

TEST_F(joining_host_test, a_crash_on_a_host_that_leaves_is_a_failure) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(20'000);
  theirs.kill(1, SIGSEGV);
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::signal);
  EXPECT_EQ(record->failed[0].left_for, "");
}

// Such as one that waits for a disk. Its host answers, so that nothing else
// tells the next attempt not to wait for it.
TEST_F(joining_host_test, a_rank_that_cannot_be_killed_is_left_with_its_host) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(20'000);
  pass_alive(15, 1);
  ranks.obey(0);
  pass_alive(5, 1);
  EXPECT_EQ(theirs.launcher->killed, std::vector{1});
  pass_alive(12, 1);
  EXPECT_THAT(abandoned, testing::IsEmpty());
  pass_seconds(1);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_NE(record->failed[0].left_for, "");
  EXPECT_THAT(abandoned, ElementsAre("h1"));
}

// Such as a process that a rank has forked there into a session of its own.
TEST_F(joining_host_test,
       what_is_left_of_a_lost_spawner_holds_no_attempt_back) {
  played_ranks theirs{system};
  start_with(theirs);
  theirs.exit(1, {process_exit::kind::lost, 0, "ended with the spawner"});
  ranks.kill(0, SIGKILL);
  EXPECT_EQ(failure_of(1).kind, kind::lost);
  EXPECT_THAT(abandoned, ElementsAre("h1"));
}

TEST_F(joining_host_test, a_failure_while_a_host_leaves_is_one) {
  played_ranks theirs{system};
  start_with(theirs);
  notice(20'000);
  ranks.end_loop(0, {ec::rank_failed, "x"});
  pass_seconds(1);
  ranks.exit(0);
  theirs.exit(1);
  EXPECT_EQ(failure_of(0).what, "x");
  EXPECT_EQ(record->failed[0].left_for, "");
}

TEST_F(joining_host_test, a_notice_of_an_agent_that_was_replaced_is_dropped) {
  start();
  join(1);
  send_anonymous(ranks.group, host_notice{1, 7, "SIGTERM", -1});
  system.settle();
  EXPECT_TRUE(state().agents->contains(1));
  EXPECT_THAT(notes, Not(HasSubstr("about to leave")));
}

TEST_F(joining_host_test, a_group_without_places_takes_no_hosts) {
  ranks.spawn_group(plan);
  auto answer = system.ask<host_accepted>(
    ranks.group, agent_hello{},
    caf::actor_cast<caf::strong_actor_ptr>(ranks.agent));
  EXPECT_EQ(answer->failure.code, ec::stopped);
}

TEST_F(joining_host_test, agents_end_with_the_group) {
  join(1);
  caf::anon_send_exit(ranks.group, caf::exit_reason::user_shutdown);
  system.settle();
  EXPECT_EQ(system.ask<stacks_shown>(other, show_stacks{})->value,
            std::nullopt);
}

TEST_F(joining_host_test, agents_learn_that_the_run_has_not_finished) {
  join(1);
  std::string reason;
  caf::actor_cast<caf::abstract_actor*>(other)->attach_functor(
    [&reason](const caf::error& x) { reason = text_of(x); });
  send_exit_anonymous(ranks.group, unfinished("the run is preempted"));
  system.settle();
  EXPECT_EQ(reason, "the run is preempted");
}

TEST_F(worker_group_test, only_the_first_rank_of_a_host_gets_its_credentials) {
  plan.credentials = link_credentials{"authority", "certificate", "key"};
  start();
  auto first = ranks.rise(0);
  auto second = ranks.rise(1);
  ASSERT_TRUE(first->value && second->value);
  EXPECT_EQ(first->value->credentials, plan.credentials);
  EXPECT_EQ(second->value->credentials, std::nullopt);
}

} // namespace troupe::internal::test
