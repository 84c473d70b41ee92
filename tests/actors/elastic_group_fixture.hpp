#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tests/actors/joining_host_fixture.hpp"

namespace troupe::internal::test {

/// An elastic run on the driver's host and two others, with one rank each.
class elastic_group_test : public joining_host_test {
protected:
  elastic_group_test() { spawn(resize_policy::next_checkpoint); }

  void spawn(resize_policy policy) {
    plan.world = {2, 3};
    plan.resize = policy;
    spawn_group({{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 1, 1}},
                 own_facts(),
                 host_limits{.join = ms{1500}, .min_ranks = 2},
                 "10.0.0.1 port 7"});
  }

  /// An agent joins; its ranks are played by *theirs*.
  void join_as(played_ranks& theirs, std::uint64_t incarnation) {
    join(incarnation);
    play(theirs);
  }

  void begin(std::uint64_t attempt, std::uint64_t first_report = 0) {
    ranks.attempt = attempt;
    for (auto* theirs : {&second, &third})
      theirs->attempt = attempt;
    start(attempt, first_report);
  }

  /// The first attempt has all three hosts.
  void start_three() {
    join_as(second, 1);
    join_as(third, 2);
    begin(3);
    ranks.rise(0);
    second.rise(1);
    third.rise(2);
  }

  /// The first one has two hosts, since the third does not come in time.
  void start_two() {
    join_as(second, 1);
    begin(3);
    pass_alive(3, 1);
    ranks.rise(0);
    second.rise(1);
  }

  /// The first attempt has all three hosts, and its rank 0 crashes.
  void crash_three() {
    start_three();
    ranks.kill(0, SIGSEGV);
    second.kill(1, SIGKILL);
    third.kill(2, SIGKILL);
  }

  /// Rank 2 of *attempt* cannot be launched; the others are up.
  void start_without_third(std::uint64_t attempt) {
    begin(attempt);
    ranks.rise(0);
    second.rise(1);
    third.launcher->fail(2, {ec::spawn, "no more processes"});
    system.settle();
  }

  /// The same, and the others end.
  void fail_to_start(std::uint64_t attempt) {
    start_without_third(attempt);
    ranks.kill(0, SIGKILL);
    second.kill(1, SIGKILL);
  }

  /// Passes time in which both other hosts send their ticks.
  void pass_both_alive(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      pass_seconds(1);
      tick(1, 1);
      tick(2, 2);
    }
  }

  /// Ranks 0 and 1 report; without a *name* it is a report without a
  /// checkpoint.
  played_ranks::report_answer report_both(std::uint64_t index,
                                          const std::string& name = {}) {
    std::optional<checkpoint_part> part;
    if (!name.empty())
      part.emplace().name = name;
    auto answer = ranks.report(0, index, {}, std::move(part));
    second.report(1, index);
    answer_batch();
    EXPECT_TRUE(answer->value);
    return answer;
  }

  played_ranks second{system};
  played_ranks third{system};
};

} // namespace troupe::internal::test
