#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "troupe/runtime/hosts/host_states.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::test {

/// Hosts a, b, ... with a clock that the test moves.
class host_states_test : public testing::Test {
protected:
  using milliseconds = std::chrono::milliseconds;
  using seconds = std::chrono::seconds;
  using lines = std::vector<std::string>;

  void make(std::size_t count, host_limits limits = {}, bool launched = true) {
    join_limit = limits.join;
    std::vector<run_host> hosts;
    for (std::size_t i = 0; i < count; ++i)
      hosts.push_back({std::string(1, static_cast<char>('a' + i)), launched});
    states.emplace(std::move(hosts), limits, "10.0.0.1:4444",
                   [this] { return jitter; });
  }

  static std::string join(const std::vector<std::size_t>& hosts) {
    std::string result;
    for (auto x : hosts)
      result += concat(' ', x);
    return result;
  }

  /// A decision in a line, for comparisons.
  static std::string line(const host_decision& x) {
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
      std::string operator()(const host_left_out& x) {
        return concat("left out ", x.host, " for ", x.pause.count() / 60'000);
      }
      std::string operator()(const start_with_hosts& x) {
        return "start" + join(x.hosts);
      }
      std::string operator()(const too_few_hosts& x) {
        return concat("fail ", to_string(x.reason.code), ": ",
                      x.reason.message);
      }
    } visitor;
    return std::visit(visitor, x);
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

  /// Of an attempt that has just begun.
  lines start_failed(const std::set<std::size_t>& hosts) {
    return to_lines(states->on_start_failed(hosts, now, now));
  }

  lines loops_failed(const std::set<std::size_t>& hosts,
                     host_limits::duration lasted = {}) {
    return to_lines(states->on_loops_failed(hosts, now - lasted, now));
  }

  void launched(std::size_t host, std::uint64_t launch) {
    EXPECT_THAT(states->on_launched(host, launch, now), testing::IsEmpty());
  }

  /// Passes *time* second by second; *alive* hosts tick with incarnation 1.
  lines pass(seconds time, const std::set<std::size_t>& alive = {}) {
    lines result;
    for (; time > seconds{0}; time -= seconds{1}) {
      now += seconds{1};
      for (auto host : alive)
        EXPECT_THAT(tick(host, 1), testing::IsEmpty());
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
  host_states::time_point now{seconds{1000}};
  double jitter = 0;
};

} // namespace troupe::internal::test
