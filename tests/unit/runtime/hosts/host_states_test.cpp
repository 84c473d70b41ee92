#include "troupe/runtime/hosts/host_states.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using time_point = host_states::time_point;

std::string join(const std::vector<std::size_t>& hosts) {
  std::string result;
  for (auto x : hosts)
    result += concat(' ', x);
  return result;
}

/// A decision in a line, for comparisons.
std::string line(const host_decision& x) {
  struct {
    std::string operator()(const launch_agent& x) {
      return concat("launch ", x.host, " as ", x.launch);
    }
    std::string operator()(const end_launcher& x) {
      return concat("end launcher ", x.launch, " of ", x.host);
    }
    std::string operator()(const fence_agent& x) {
      return concat("fence ", x.incarnation, " of ", x.host);
    }
    std::string operator()(const host_suspected& x) {
      return concat("suspected ", x.host, " after ", x.silence.count());
    }
    std::string operator()(const host_answers& x) {
      return concat("answers ", x.host);
    }
    std::string operator()(const host_lost& x) {
      return concat("lost ", x.host, ": ", x.cause);
    }
    std::string operator()(const host_given_up& x) {
      auto min = x.pause.count() / 60'000;
      return concat("given up ", x.host, min > 0 ? concat(" for ", min) : "",
                    ": ", x.cause);
    }
    std::string operator()(const start_with_hosts& x) {
      return "start" + join(x.hosts);
    }
    std::string operator()(const too_few_hosts& x) {
      return concat("fail ", to_string(x.reason.code), ": ", x.reason.message);
    }
  } visitor;
  return std::visit(visitor, x);
}

/// Hosts a, b, ... with a clock that the test moves.
class host_states_test : public testing::Test {
protected:
  using lines = std::vector<std::string>;

  void make(std::size_t count, host_limits limits = {}, bool launched = true) {
    join_limit = limits.join;
    std::vector<run_host> hosts;
    for (std::size_t i = 0; i < count; ++i)
      hosts.push_back({std::string(1, static_cast<char>('a' + i)), launched});
    states.emplace(std::move(hosts), limits, "10.0.0.1:4444",
                   [this] { return jitter; });
  }

  static lines to_lines(const host_decisions& xs) {
    lines result;
    for (const auto& x : xs)
      result.push_back(line(x));
    return result;
  }

  lines gather() { return to_lines(states->gather(now, join_limit)); }

  lines hello(std::size_t host, std::uint64_t incarnation) {
    return to_lines(states->on_hello(host, incarnation, now));
  }

  lines tick(std::size_t host, std::uint64_t incarnation) {
    return to_lines(states->on_tick(host, incarnation, now));
  }

  lines launcher_ended(std::size_t host, std::uint64_t launch,
                       std::string reason, bool may_help = true) {
    return to_lines(states->on_launcher_ended(host, launch, std::move(reason),
                                              may_help, now));
  }

  void launched(std::size_t host, std::uint64_t launch) {
    EXPECT_THAT(states->on_launched(host, launch, now), IsEmpty());
  }

  /// Passes *time* second by second; *alive* hosts tick with incarnation 1.
  lines pass(seconds time, const std::set<std::size_t>& alive = {}) {
    lines result;
    for (; time > seconds{0}; time -= seconds{1}) {
      now += seconds{1};
      for (auto host : alive)
        EXPECT_THAT(tick(host, 1), IsEmpty());
      for (auto& x : to_lines(states->check(now)))
        result.push_back(std::move(x));
    }
    return result;
  }

  /// All hosts are ready with incarnation 1, and serve.
  void serve(std::size_t count, host_limits limits = {}) {
    make(count, limits);
    gather();
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < count; ++i) {
      launched(i, i + 1);
      hello(i, 1);
      all.push_back(i);
    }
    states->on_attempt_started(all);
  }

  host_state state(std::size_t host) { return states->hosts()[host].state; }

  std::optional<host_states> states;
  host_states::duration join_limit = host_limits{}.join;
  time_point now{seconds{1000}};
  double jitter = 0;
};

TEST_F(host_states_test, starts_once_all_hosts_are_ready) {
  make(2);
  EXPECT_THAT(gather(), ElementsAre("launch 0 as 1", "launch 1 as 2"));
  EXPECT_EQ(state(0), host_state::launching);
  launched(0, 1);
  EXPECT_EQ(state(0), host_state::connecting);
  EXPECT_THAT(hello(0, 7), IsEmpty());
  EXPECT_EQ(state(0), host_state::ready);
  EXPECT_THAT(hello(1, 8), ElementsAre("start 0 1")); // Before on_launched.
  states->on_attempt_started({0, 1});
  EXPECT_EQ(state(1), host_state::serving);
  states->on_attempt_ended(now);
  EXPECT_EQ(state(1), host_state::ready);
  EXPECT_THAT(gather(), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, waits_for_agents_that_come_by_themselves) {
  make(2, {}, false);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{100}), IsEmpty());
  EXPECT_THAT(hello(0, 1), IsEmpty());
  EXPECT_THAT(hello(1, 1), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, starts_with_enough_hosts_after_the_join_limit) {
  make(3, {.min_ranks = 2});
  gather();
  for (std::size_t i = 0; i < 3; ++i)
    launched(i, i + 1);
  hello(0, 1);
  hello(2, 1);
  EXPECT_THAT(pass(seconds{119}, {0, 2}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0, 2}),
              ElementsAre("end launcher 2 of 1", "start 0 2"));
}

TEST_F(host_states_test, names_each_missing_host_and_its_cause) {
  make(6, {.max_relaunches = 0});
  gather();
  hello(0, 1);
  launched(1, 2);
  launched(2, 3);
  launched(4, 5);
  EXPECT_THAT(
    launcher_ended(2, 3, "ssh: connect to host c port 22: No route to host"),
    ElementsAre("given up 2: ssh: connect to host c port 22: No route to host",
                "fail spawn: 5 of 6 hosts are missing, and 6 are needed:\n"
                "  b: launched, but its agent did not connect to "
                "10.0.0.1:4444\n"
                "  c: ssh: connect to host c port 22: No route to host\n"
                "  d: its launcher has not started\n"
                "  e: launched, but its agent did not connect to "
                "10.0.0.1:4444\n"
                "  f: its launcher has not started"));
}

TEST_F(host_states_test, does_not_count_a_driver_without_ranks) {
  states.emplace(
    std::vector<run_host>{{"driver", false, {0, {}}, 0}, {"a", true}},
    host_limits{}, "10.0.0.1:7", [] { return 0.0; });
  hello(0, 1);
  EXPECT_THAT(gather(), ElementsAre("launch 1 as 1"));
  EXPECT_THAT(launcher_ended(1, 1, "exit code 78", false),
              ElementsAre("given up 1: exit code 78",
                          "fail spawn: 1 of 1 hosts is missing, and 1 is "
                          "needed:\n  a: exit code 78"));
}

TEST_F(host_states_test, names_the_cause_before_a_launch_under_way) {
  make(2);
  gather();
  hello(0, 1);
  launcher_ended(1, 2, "Connection timed out");
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  launched(1, 3);
  EXPECT_THAT(pass(seconds{119}, {0}),
              testing::Contains(testing::EndsWith(
                "  b: launched, but its agent did not connect to "
                "10.0.0.1:4444; before that: Connection timed out")));
}

TEST_F(host_states_test, fails_after_the_join_limit_with_too_few_hosts) {
  make(2, {}, false);
  gather();
  hello(0, 1);
  EXPECT_THAT(
    pass(seconds{120}, {0}),
    ElementsAre("fail timeout: 1 of 2 hosts is missing after 120 s, and "
                "2 are needed:\n"
                "  b: no agent has connected to 10.0.0.1:4444"));
  EXPECT_THAT(pass(seconds{200}, {0}), IsEmpty()); // HS-4
}

TEST_F(host_states_test, starts_early_if_no_other_host_can_come) {
  make(2, {.max_relaunches = 0, .min_ranks = 1});
  gather();
  hello(0, 1);
  EXPECT_THAT(launcher_ended(1, 2, "no such host"),
              ElementsAre("given up 1 for 10: no such host", "start 0"));
}

TEST_F(host_states_test, repeats_a_launch_with_growing_waits) {
  make(1, {.join = seconds{100'000}, .max_relaunches = -1});
  gather();
  std::uint64_t launch = 1;
  for (auto wait : {1, 2, 4, 8, 16, 32, 60, 60, 60}) {
    EXPECT_THAT(launcher_ended(0, launch, "Connection timed out"), IsEmpty());
    EXPECT_EQ(state(0), host_state::expected);
    EXPECT_THAT(pass(seconds{wait - 1}), IsEmpty());
    EXPECT_THAT(pass(seconds{1}),
                ElementsAre(concat("launch 0 as ", ++launch)));
  }
}

TEST_F(host_states_test, jitter_takes_up_to_a_half_of_a_wait) {
  make(1);
  gather();
  jitter = 0.5;
  launcher_ended(0, 1, "Connection timed out");
  now += milliseconds{749};
  EXPECT_THAT(states->check(now), IsEmpty());
  now += milliseconds{1};
  EXPECT_THAT(to_lines(states->check(now)), ElementsAre("launch 0 as 2"));
}

TEST_F(host_states_test, HS_3_gives_a_host_up_after_its_budget) {
  make(2, {.max_relaunches = 2});
  gather();
  hello(0, 1);
  EXPECT_THAT(launcher_ended(1, 2, "refused"), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  EXPECT_THAT(launcher_ended(1, 3, "refused"), IsEmpty());
  EXPECT_THAT(pass(seconds{2}, {0}), ElementsAre("launch 1 as 4"));
  EXPECT_THAT(launcher_ended(1, 4, "refused"),
              ElementsAre("given up 1: refused",
                          "fail spawn: 1 of 2 hosts is missing, and 2 are "
                          "needed:\n  b: refused (launched 3 times)"));
  EXPECT_EQ(state(1), host_state::given_up);
  // It may still come by itself.
  EXPECT_THAT(hello(1, 1), IsEmpty());
  EXPECT_EQ(state(1), host_state::ready);
}

// A run of weeks may lose the same host now and then.
TEST_F(host_states_test, HS_3_progress_renews_the_budget) {
  make(1, {.max_relaunches = 2});
  gather();
  std::uint64_t agent = 1;
  auto serve_again = [&] {
    hello(0, agent);
    gather();
    states->on_attempt_started({0});
  };
  auto lose = [&] {
    return to_lines(states->on_gone(0, agent++, "no answer", now));
  };
  for (int week = 0; week < 5; ++week) {
    serve_again();
    states->on_progress();
    lose();
    EXPECT_EQ(state(0), host_state::lost) << "week " << week;
    EXPECT_THAT(pass(seconds{1}), testing::SizeIs(1)) << "launched again";
  }
  // Without progress, the second launch in a row is the last one.
  serve_again();
  lose();
  EXPECT_THAT(pass(seconds{2}), testing::SizeIs(1));
  serve_again();
  EXPECT_THAT(lose(), testing::Contains("given up 0: no answer"));
}

TEST_F(host_states_test, HS_3_an_elastic_run_tries_again_after_a_long_pause) {
  make(2, {.max_relaunches = 0, .min_ranks = 1});
  gather();
  hello(0, 1);
  launcher_ended(1, 2, "no such host", false);
  std::uint64_t launch = 2;
  for (auto minutes : {10, 20, 40, 60, 60}) {
    EXPECT_EQ(state(1), host_state::given_up);
    EXPECT_THAT(gather(), ElementsAre("start 0")) << "it does not wait for it";
    EXPECT_THAT(pass(seconds{60 * minutes - 1}, {0}), IsEmpty());
    EXPECT_THAT(pass(seconds{1}, {0}),
                ElementsAre(concat("launch 1 as ", ++launch)));
    launcher_ended(1, launch, "no such host", false);
  }
  // Once it has made progress, the pauses begin again.
  hello(1, 1);
  EXPECT_THAT(gather(), ElementsAre("start 0 1"));
  states->on_attempt_started({0, 1});
  states->on_progress();
  auto lost = to_lines(states->on_gone(1, 1, "no answer", now));
  EXPECT_THAT(lost, testing::Contains("given up 1 for 10: no answer"));
}

TEST_F(host_states_test, does_not_repeat_what_cannot_help) {
  make(2);
  gather();
  EXPECT_THAT(launcher_ended(1, 2, "exit code 78", false),
              testing::Contains("given up 1: exit code 78"));
  make(2);
  gather();
  launched(1, 2);
  EXPECT_THAT(to_lines(states->on_refused(1, "its build id differs", now)),
              ElementsAre("end launcher 2 of 1",
                          "given up 1: its build id differs",
                          HasSubstr("  b: its build id differs")));
}

TEST_F(host_states_test, a_host_may_lack_its_mounts_after_a_boot) {
  serve(2);
  states->on_gone(1, 1, "its connection broke", now);
  gather();
  std::uint64_t launch = 3;
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  for (auto wait : {2, 4, 8}) {
    EXPECT_THAT(launcher_ended(1, launch, "exit code 78", false), IsEmpty());
    EXPECT_THAT(pass(seconds{wait}, {0}),
                ElementsAre(concat("launch 1 as ", ++launch)));
  }
  launched(1, launch);
  EXPECT_THAT(hello(1, 2), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, launches_again_if_an_agent_does_not_connect) {
  make(1, {.join = seconds{10}});
  states->gather(now, seconds{100});
  pass(seconds{5}); // Waits for a free launcher.
  launched(0, 1);
  EXPECT_THAT(pass(seconds{9}), IsEmpty());
  EXPECT_THAT(pass(seconds{2}),
              ElementsAre("end launcher 1 of 0", "launch 0 as 2"));
  EXPECT_THAT(launcher_ended(0, 1, "ended by signal"), IsEmpty());
  EXPECT_EQ(state(0), host_state::launching);
}

TEST_F(host_states_test, suspects_a_host_that_misses_three_ticks) {
  serve(2);
  EXPECT_THAT(pass(seconds{2}, {0}), IsEmpty());
  EXPECT_EQ(state(1), host_state::serving);
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("suspected 1 after 3000"));
  EXPECT_EQ(state(1), host_state::suspect);
  EXPECT_THAT(states->usable(), ElementsAre(0));
  EXPECT_THAT(pass(seconds{1}, {0}), IsEmpty()) << "it was said";
  EXPECT_THAT(tick(1, 1), ElementsAre("answers 1"));
  EXPECT_EQ(state(1), host_state::serving);
}

TEST_F(host_states_test, loses_a_host_after_the_timeout_and_launches_it_again) {
  serve(2);
  EXPECT_THAT(pass(seconds{9}, {0}), ElementsAre("suspected 1 after 3000"));
  EXPECT_THAT(pass(seconds{1}, {0}),
              ElementsAre("fence 1 of 1", "end launcher 2 of 1",
                          "lost 1: it did not answer for 10 s"));
  EXPECT_EQ(state(1), host_state::lost);
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  EXPECT_THAT(hello(1, 2), IsEmpty());
  EXPECT_EQ(state(1), host_state::ready); // For the next attempt.
}

TEST_F(host_states_test, an_agent_outlives_its_launcher) {
  serve(2);
  EXPECT_THAT(launcher_ended(1, 2, "killed"), IsEmpty());
  EXPECT_THAT(pass(seconds{60}, {0, 1}), IsEmpty());
  EXPECT_THAT(hello(1, 1), IsEmpty());
  EXPECT_EQ(state(1), host_state::serving);
}

TEST_F(host_states_test, HS_1_a_later_agent_comes_once_the_earlier_is_lost) {
  serve(2);
  EXPECT_THAT(hello(1, 2), ElementsAre("fence 2 of 1"));
  EXPECT_EQ(state(1), host_state::serving);
  pass(seconds{10}, {0});
  EXPECT_THAT(hello(1, 2), IsEmpty());
  EXPECT_EQ(state(1), host_state::ready);
  // The first one connects again, and what it sent still arrives.
  EXPECT_THAT(hello(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_THAT(tick(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_EQ(states->hosts()[1].incarnation, 2u);
  EXPECT_EQ(state(1), host_state::ready);
}

TEST_F(host_states_test, HS_1_a_frozen_host_stays_fenced_after_its_thaw) {
  serve(2);
  pass(seconds{10}, {0});
  EXPECT_THAT(tick(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_THAT(hello(1, 1), ElementsAre("fence 1 of 1"));
  EXPECT_EQ(state(1), host_state::lost);
}

TEST_F(host_states_test, a_draining_host_leaves_with_the_attempt) {
  serve(2, {.min_ranks = 1});
  EXPECT_THAT(states->on_draining(1, 1, seconds{30}, now), IsEmpty());
  EXPECT_EQ(state(1), host_state::draining);
  EXPECT_THAT(to_lines(states->on_attempt_ended(now)),
              ElementsAre("fence 1 of 1", "end launcher 2 of 1"));
  EXPECT_EQ(state(1), host_state::left);
}

TEST_F(host_states_test, a_host_that_left_is_launched_once_it_may_be_back) {
  serve(2);
  states->on_draining(1, 1, seconds{30}, now);
  states->on_attempt_ended(now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{29}, {0}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
}

// The grace of its notice may be longer than the limit on joining.
TEST_F(host_states_test, a_host_that_left_has_the_join_limit_once_it_is_gone) {
  serve(2, {.join = seconds{10}, .max_relaunches = 1});
  states->on_draining(1, 1, seconds{60}, now);
  states->on_attempt_ended(now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{59}, {0}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0}), ElementsAre("launch 1 as 3"));
  launched(1, 3);
  EXPECT_THAT(pass(seconds{9}, {0}), IsEmpty());
  EXPECT_EQ(hello(1, 2).back(), "start 0 1");
}

TEST_F(host_states_test, a_host_that_left_and_does_not_come_back_is_missing) {
  make(2, {.join = seconds{10}}, false);
  hello(0, 1);
  hello(1, 1);
  states->on_draining(1, 1, seconds{60}, now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{69}, {0}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}, {0}),
              ElementsAre(HasSubstr("1 of 2 hosts is missing after 70 s")));
}

TEST_F(host_states_test, enough_hosts_do_not_wait_for_one_that_leaves) {
  make(2, {.join = seconds{10}, .min_ranks = 1}, false);
  hello(0, 1);
  hello(1, 1);
  states->on_draining(1, 1, seconds{60}, now);
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_THAT(pass(seconds{10}, {0}), ElementsAre("start 0"));
}

TEST_F(host_states_test, a_draining_host_that_is_lost_has_left) {
  serve(2);
  states->on_draining(1, 1, seconds{30}, now);
  EXPECT_THAT(pass(seconds{10}, {0}),
              ElementsAre("suspected 1 after 3000", "fence 1 of 1",
                          "end launcher 2 of 1",
                          "lost 1: it did not answer for 10 s"));
  EXPECT_EQ(state(1), host_state::left);
}

TEST_F(host_states_test, a_host_without_an_attempt_leaves_at_once) {
  make(2, {}, false);
  hello(1, 1);
  EXPECT_THAT(to_lines(states->on_draining(1, 1, seconds{30}, now)),
              ElementsAre("fence 1 of 1"));
  hello(0, 1);
  EXPECT_THAT(gather(), IsEmpty());
  // A new pod of the same index.
  EXPECT_THAT(hello(1, 2), ElementsAre("start 0 1"));
}

TEST_F(host_states_test, waits_are_short_again_after_progress) {
  auto lose_and_wait = [this](std::uint64_t incarnation) {
    pass(seconds{10});
    int waited = 1;
    while (pass(seconds{1}).empty())
      ++waited;
    hello(0, incarnation + 1);
    states->on_attempt_started({0});
    return waited;
  };
  serve(1);
  EXPECT_EQ(lose_and_wait(1), 1);
  EXPECT_EQ(lose_and_wait(2), 2);
  EXPECT_EQ(lose_and_wait(3), 4);
  states->on_progress();
  EXPECT_EQ(lose_and_wait(4), 1);
}

TEST_F(host_states_test, does_not_blame_hosts_for_its_own_standstill) {
  serve(2);
  pass(seconds{2}, {0, 1});
  now += seconds{3600}; // Stopped by a debugger.
  EXPECT_THAT(states->check(now), IsEmpty());
  EXPECT_EQ(state(0), host_state::serving);
  make(1, {}, false);
  gather();
  pass(seconds{1});
  now += seconds{3600};
  EXPECT_THAT(states->check(now), IsEmpty());
  EXPECT_THAT(pass(seconds{118}), IsEmpty());
  EXPECT_THAT(pass(seconds{1}), ElementsAre(HasSubstr("fail timeout")));
}

TEST_F(host_states_test, a_group_that_does_not_wait_starts_with_what_is_there) {
  serve(3, {.min_ranks = 2});
  hello(2, 2);
  states->on_gone(1, 1, "lost", now);
  states->on_attempt_ended(now);
  EXPECT_THAT(to_lines(states->gather(now, seconds{0})),
              ElementsAre("start 0 2"));
}

TEST_F(host_states_test, an_elastic_run_needs_room_for_its_fewest_ranks) {
  states.emplace(
    std::vector<run_host>{{"h0", false, 2}, {"h1", false, 1}, {"h2", false, 4}},
    host_limits{.min_ranks = 5}, "10.0.0.1:7", [] { return 0.0; });
  hello(0, 1);
  EXPECT_THAT(to_lines(states->gather(now, seconds{5}, true)), IsEmpty());
  EXPECT_THAT(hello(1, 1), IsEmpty()) << "three slots";
  EXPECT_THAT(hello(2, 1), ElementsAre("start 0 1 2"));
  states->on_gone(1, 1, "lost", now);
  EXPECT_THAT(to_lines(states->gather(now, seconds{5}, true)),
              ElementsAre("start 0 2"));
  states->on_gone(2, 1, "lost", now);
  gather();
  EXPECT_THAT(pass(seconds{121}, {0}),
              ElementsAre(HasSubstr("room for 5 ranks is needed")));
}

} // namespace
} // namespace troupe::internal
