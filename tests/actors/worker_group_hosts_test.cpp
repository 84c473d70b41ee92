// The worker group as the agents of other hosts join, and what they learn.

#include "tests/actors/joining_host_fixture.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal::test {

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

TEST_F(joining_host_test, a_host_without_ranks_may_be_lost) {
  plan.world = {1, 1};
  spawn_group({{{"", 0, 1, 1}, {"", 1, 0, 0}},
               own_facts(),
               host_limits{.join = ms{1500}},
               "10.0.0.1 port 7"});
  start();
  EXPECT_TRUE(ranks.launcher->launched.empty());
  join(1);
  ranks.rise(0);
  EXPECT_TRUE(elsewhere->launched.empty());
  lose();
  EXPECT_THAT(notes, HasSubstr("host h1 is lost: "));
  auto answer = ranks.report(0, 0);
  answer_batch();
  EXPECT_TRUE(answer->value);
  ranks.finish(0);
  EXPECT_TRUE(record->failed.empty());
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
