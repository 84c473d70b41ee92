// Callbacks that are actors: their order, their time, and what becomes of the
// ones that fail, end or do not answer.

#include "troupe/actors/callback_chain.hpp"

#include <caf/actor_config.hpp>
#include <caf/forwarding_actor_proxy.hpp>
#include <gmock/gmock.h>

#include "tests/actors/driver_fixture.hpp"
#include "tests/actors/scripted_callback.hpp"

namespace troupe::internal::test {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

class callback_chain_test : public testing::Test {
protected:
  using done = std::shared_ptr<answer<callback_done>>;

  user_callback_actor add(actor_script x) {
    x.log = &log;
    scripts.push_back(std::make_shared<actor_script>(std::move(x)));
    args.actors.push_back(
      {scripts.back()->name, system.spawn(played_actor, scripts.back())});
    return args.actors.back().actor;
  }

  /// Adds "far", which stands for an actor of another node: what it gets is
  /// serialized.
  void add_far() {
    add({.name = "broker"});
    auto broker = args.actors[0].actor;
    caf::node_id::default_data::host_id_type host{};
    host.fill(7);
    caf::actor_config config;
    auto proxy = caf::make_actor<caf::forwarding_actor_proxy, caf::actor>(
      99, caf::make_node_id(4711, host), &broker.home_system(), config,
      caf::actor_cast<caf::actor>(broker));
    args.actors[0] = {"far", caf::actor_cast<user_callback_actor>(proxy)};
  }

  void spawn() {
    args.patience.note = [this](std::string text) {
      notes.push_back(std::move(text));
    };
    chain = system.spawn(callback_chain, args);
  }

  done report(std::uint64_t index) {
    return system.ask<callback_done>(
      chain, after_report{"", index, 0, {{}}, std::nullopt});
  }

  std::vector<std::string> failures(const done& x) {
    std::vector<std::string> result;
    EXPECT_TRUE(x->value);
    for (auto& failure : x->value->failures) {
      EXPECT_EQ(failure.code, ec::callback_failed);
      result.push_back(failure.message);
    }
    return result;
  }

  std::vector<std::string> log;
  std::vector<std::string> notes;
  stepped_system system;
  std::vector<script> scripts; // Answers that are due need their system.
  callback_chain_args args;
  user_callback_actor chain;
};

TEST_F(callback_chain_test, calls_classes_first_and_then_actors_in_order) {
  auto callback = std::make_shared<recorded_callback>();
  auto list = std::make_shared<callback_list>(
    std::vector<std::shared_ptr<user_callback>>{callback});
  args.classes = system.spawn(callback_runner, callback_runner_args{list});
  add({.name = "a"});
  add({.name = "b"});
  spawn();
  system.hold(args.classes);
  auto first = system.ask<callback_done>(chain, before_run{{.name = "r"}});
  EXPECT_THAT(log, IsEmpty());
  system.release();
  EXPECT_TRUE(first->value);
  report(0);
  EXPECT_THAT(log, ElementsAre("a before_run r", "b before_run r",
                               "a after_report 0", "b after_report 0"));
  EXPECT_THAT(callback->calls,
              ElementsAre("before_run 0", "after_report 0 []"));
}

TEST_F(callback_chain_test, the_next_event_waits_until_all_have_answered) {
  auto a = add({.name = "a"});
  auto b = add({.name = "b"});
  spawn();
  system.hold(b);
  auto first = report(0);
  auto second = report(1);
  EXPECT_THAT(log, ElementsAre("a after_report 0"));
  EXPECT_TRUE(first->pending());
  system.release();
  EXPECT_TRUE(first->value);
  EXPECT_TRUE(second->value);
  EXPECT_THAT(log, ElementsAre("a after_report 0", "b after_report 0",
                               "a after_report 1", "b after_report 1"));
}

TEST_F(callback_chain_test, times_each_by_how_long_its_answer_took) {
  auto a = add({.name = "a"});
  auto b = add({.name = "b"});
  spawn();
  system.hold(b);
  auto first = report(0);
  system.pass(std::chrono::milliseconds{1500});
  system.release();
  ASSERT_TRUE(first->value);
  EXPECT_THAT(first->value->times,
              ElementsAre(callback_time{"a", 0}, callback_time{"b", 1.5}));
  EXPECT_EQ(first->value->seconds, 1.5);
}

TEST_F(callback_chain_test,
       one_that_answers_with_an_error_receives_later_events) {
  add({.name = "a", .fails_in = "after_report"});
  add({.name = "b"});
  spawn();
  auto first = report(0);
  EXPECT_THAT(failures(first),
              ElementsAre("callback actor 1 (a) failed in after_report: no "
                          "space left"));
  EXPECT_FALSE(first->value->abort);
  report(1);
  EXPECT_EQ(log.size(), 4u);
}

TEST_F(callback_chain_test, one_that_ends_while_it_is_asked_has_failed_once) {
  add({.name = "a", .throws_in = "after_report"});
  add({.name = "b"});
  spawn();
  EXPECT_THAT(failures(report(0)),
              ElementsAre(AllOf(HasSubstr("callback actor 1 (a) failed in "),
                                HasSubstr("off"))));
  auto second = report(1);
  EXPECT_THAT(failures(second), IsEmpty());
  EXPECT_THAT(log, ElementsAre("a after_report 0", "b after_report 0",
                               "b after_report 1"));
  EXPECT_THAT(second->value->times,
              ElementsAre(callback_time{"a", 0}, callback_time{"b", 0}));
}

TEST_F(callback_chain_test, one_that_ended_between_events_fails_at_the_next) {
  auto a = add({.name = "a"});
  spawn();
  report(0);
  caf::anon_send_exit(a, caf::exit_reason::kill);
  system.settle();
  EXPECT_THAT(failures(report(1)), ElementsAre(HasSubstr("(a) has ended")));
  EXPECT_THAT(failures(report(2)), IsEmpty());
}

TEST_F(callback_chain_test, one_that_lost_its_connection_is_not_waited_for) {
  auto a = add({.name = "a", .keeps_in = "after_report"});
  spawn();
  auto first = report(0);
  auto second = report(1);
  EXPECT_TRUE(first->pending());
  caf::anon_send_exit(a, caf::exit_reason::remote_link_unreachable);
  system.settle();
  EXPECT_THAT(failures(first),
              ElementsAre(HasSubstr("can no longer be reached")));
  EXPECT_THAT(failures(second), IsEmpty());
}

TEST_F(callback_chain_test, any_number_of_events_passes_one_that_ended) {
  auto a = add({.name = "a", .keeps_in = "after_report"});
  spawn();
  std::vector<done> all;
  for (std::uint64_t i = 0; i < 50'000; ++i)
    all.push_back(report(i));
  caf::anon_send_exit(a, caf::exit_reason::kill);
  system.settle();
  for (auto& x : all)
    EXPECT_TRUE(x->value);
}

TEST_F(callback_chain_test, one_that_failed_and_then_ends_is_not_waited_for) {
  auto a = add({.name = "a", .fails_in = "after_report"});
  spawn();
  EXPECT_EQ(failures(report(0)).size(), 1u);
  scripts[0]->fails_in.clear();
  scripts[0]->keeps_in = "after_report";
  auto second = report(1);
  EXPECT_TRUE(second->pending());
  caf::anon_send_exit(a, caf::exit_reason::remote_link_unreachable);
  system.settle();
  EXPECT_THAT(failures(second),
              ElementsAre(HasSubstr("can no longer be reached")));
}

TEST_F(callback_chain_test, under_abort_an_event_still_goes_to_all) {
  args.callback_errors = callback_errors::abort;
  add({.name = "a"});
  add({.name = "b", .fails_in = "after_report"});
  add({.name = "c"});
  spawn();
  auto first = report(0);
  EXPECT_EQ(failures(first).size(), 1u);
  EXPECT_TRUE(first->value->abort);
  EXPECT_THAT(log, ElementsAre("a after_report 0", "b after_report 0",
                               "c after_report 0"));
  EXPECT_EQ(first->value->times.size(), 3u);
}

TEST_F(callback_chain_test, under_abort_all_receive_after_run) {
  args.callback_errors = callback_errors::abort;
  add({.name = "a", .fails_in = "after_run"});
  add({.name = "b", .fails_in = "after_run"});
  spawn();
  auto last = system.ask<callback_done>(chain, after_run{});
  EXPECT_EQ(failures(last).size(), 2u);
}

TEST_F(callback_chain_test, failures_of_an_answer_count_as_the_actors) {
  args.callback_errors = callback_errors::abort;
  auto own = system.spawn([]() -> user_callback_actor::behavior_type {
    auto answer = [] {
      return callback_done{
        99, false, {{ec::storage, "disk https://me:hunter2@nas"}}, {{"x", 9}}};
    };
    return {[=](const before_run&) { return answer(); },
            [=](const after_report&) { return answer(); },
            [=](const after_exception&) { return answer(); },
            [=](const after_run&) { return answer(); }};
  });
  args.actors.push_back({"mine", own});
  spawn();
  auto first = report(0);
  EXPECT_THAT(
    failures(first),
    ElementsAre("callback actor 1 (mine) failed in after_report: disk "
                "https://***@nas"));
  EXPECT_TRUE(first->value->abort);
  EXPECT_EQ(first->value->seconds, 0);
  EXPECT_THAT(first->value->times, ElementsAre(callback_time{"mine", 0}));
}

TEST_F(callback_chain_test, its_end_ends_the_classes_but_no_actor_of_a_user) {
  auto list = std::make_shared<callback_list>(
    std::vector<std::shared_ptr<user_callback>>{});
  args.classes = system.spawn(callback_runner, callback_runner_args{list});
  auto a = add({.name = "a"});
  spawn();
  report(0);
  caf::anon_send_exit(chain, caf::exit_reason::user_shutdown);
  system.settle();
  auto gone = system.ask<callback_done>(args.classes, after_run{});
  EXPECT_TRUE(gone->failure);
  auto there = system.ask<callback_done>(a, after_run{});
  EXPECT_TRUE(there->value);
}

TEST_F(callback_chain_test, one_that_does_not_answer_is_named_again_and_again) {
  args.patience.timeout = 30s;
  add({.name = "a", .keeps_in = "after_report"});
  spawn();
  auto first = report(0);
  system.pass(30s);
  system.pass(29s);
  EXPECT_THAT(notes, ElementsAre("callback actor 1 (a) in after_report has not "
                                 "returned for 30 s; the run waits for it"));
  system.pass(1s);
  EXPECT_THAT(notes.back(), HasSubstr("for 60 s"));
  EXPECT_TRUE(first->pending());
  system.ask<callback_done>(args.actors[0].actor, after_exception{});
  EXPECT_THAT(failures(first), IsEmpty());
  system.pass(90s);
  EXPECT_EQ(notes.size(), 2u);
}

TEST_F(callback_chain_test,
       continues_at_the_limit_without_a_callback_that_does_not_answer) {
  args.patience.limit = 50s;
  add({.name = "a", .keeps_in = "after_report"});
  add({.name = "b"});
  spawn();
  auto first = report(0);
  system.pass(49s);
  EXPECT_TRUE(first->pending());
  system.pass(1s);
  EXPECT_THAT(failures(first),
              ElementsAre("callback actor 1 (a) in after_report did not return "
                          "for 50 s; the run continues without it"));
  auto second = report(1);
  EXPECT_THAT(failures(second), IsEmpty());
  EXPECT_THAT(first->value->skipped, ElementsAre("callback actor 1 (a)"));
  EXPECT_THAT(second->value->skipped, ElementsAre("callback actor 1 (a)"));
  // Its late answer is none of the second event.
  system.ask<callback_done>(args.actors[0].actor, after_exception{});
  EXPECT_THAT(log, ElementsAre("a after_report 0", "b after_report 0",
                               "b after_report 1", "a after_exception 0"));
}

TEST_F(callback_chain_test, the_limit_counts_no_time_of_a_driver_that_stopped) {
  args.patience.limit = 50s;
  std::chrono::steady_clock::time_point real{};
  args.now = [&real] { return real; };
  add({.name = "a", .keeps_in = "after_report"});
  spawn();
  auto first = report(0);
  system.pass(1s);
  real += 60s;
  system.pass(60s);
  EXPECT_TRUE(first->pending());
  system.pass(48s);
  EXPECT_TRUE(first->pending());
  system.pass(1s);
  EXPECT_THAT(failures(first), ElementsAre(HasSubstr("return for 50 s")));
}

TEST_F(callback_chain_test, leaves_the_thread_of_classes_behind_at_the_limit) {
  auto list =
    std::make_shared<callback_list>(std::vector<std::shared_ptr<user_callback>>{
      std::make_shared<recorded_callback>()});
  args.classes = system.spawn(callback_runner, callback_runner_args{list});
  args.watch = list->watch();
  args.watch->set("callback 1 (slow)", "after_report");
  args.patience.limit = 50s;
  args.patience.left_behind = std::make_shared<std::atomic<bool>>(false);
  auto classes = args.classes;
  add({.name = "b"});
  spawn();
  system.hold(classes);
  auto first = report(0);
  system.pass(50s);
  EXPECT_THAT(failures(first),
              ElementsAre(AllOf(HasSubstr("callback 1 (slow) in after_report"),
                                HasSubstr("thread is left behind"))));
  EXPECT_TRUE(*args.patience.left_behind);
  auto second = report(1);
  EXPECT_THAT(failures(second), IsEmpty());
  auto skipped = ElementsAre("callback 1 (slow) and those beside it");
  EXPECT_THAT(first->value->skipped, skipped);
  EXPECT_THAT(second->value->skipped, skipped);
  system.release(); // It returns too late.
  EXPECT_THAT(log, ElementsAre("b after_report 0", "b after_report 1"));
}

TEST_F(callback_chain_test, what_is_too_large_to_be_sent_is_not_sent) {
  add_far();
  add({.name = "near"});
  args.longest_message = 1000;
  spawn();
  metrics large{{"text", std::string(2000, 'x')}};
  auto first = system.ask<callback_done>(
    chain, after_report{"", 0, 0, {large, large}, std::nullopt});
  EXPECT_THAT(
    failures(first),
    ElementsAre(MatchesRegex("callback actor 1 \\(far\\) was not called: its "
                             "after_report takes 4[0-9]+ bytes, and a message "
                             "to another process holds 1000")));
  EXPECT_THAT(log, ElementsAre("near after_report 0"));
  EXPECT_THAT(first->value->skipped, IsEmpty());
  std::string text(2000, 'x');
  auto second = system.ask<callback_done>(
    chain, after_exception{"", 0, {{1, {.what = text}}}});
  EXPECT_THAT(failures(second),
              ElementsAre(HasSubstr("its after_exception takes 2")));
  auto third = system.ask<callback_done>(chain, before_run{{.name = text}});
  EXPECT_THAT(failures(third), ElementsAre(HasSubstr("its before_run takes")));
}

TEST_F(callback_chain_test, counts_what_empty_texts_take_in_a_message) {
  add_far();
  args.longest_message = 700'000;
  spawn();
  metrics many; // Their names have less than half the limit.
  for (int i = 100'000; i < 150'000; ++i)
    many[std::to_string(i)] = "";
  auto answer = system.ask<callback_done>(
    chain, after_report{"", 0, 0, {many}, std::nullopt});
  EXPECT_THAT(failures(answer),
              ElementsAre(HasSubstr("its after_report takes")));
}

} // namespace troupe::internal::test
