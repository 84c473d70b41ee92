#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include <gtest/gtest.h>

#include "troupe/runtime/hosts/host_roster.hpp"

namespace troupe::internal::test {

/// A run on three hosts, of which two come by themselves.
class host_roster_test : public testing::Test {
protected:
  static agent_facts facts(std::uint64_t incarnation, const std::string& host,
                           const std::string& build_id = "aa") {
    agent_facts x;
    x.incarnation = incarnation;
    x.host = host;
    x.build_id = build_id;
    x.version = "1";
    return x;
  }

  expected<std::size_t> admit(const agent_facts& x) {
    last.clear();
    return roster.admit(x, now, last);
  }

  /// The agent is assigned a host and finds it in order.
  std::size_t join(std::uint64_t incarnation, const std::string& host) {
    auto number = admit(facts(incarnation, host));
    EXPECT_TRUE(number) << number.error().message;
    if (!number)
      return 0;
    auto decisions = roster.checked(*number, incarnation, {}, now);
    EXPECT_TRUE(decisions);
    if (decisions)
      last = std::move(*decisions);
    return *number;
  }

  bool starts() const {
    return !last.empty()
           && std::holds_alternative<start_with_hosts>(last.back());
  }

  std::string missing() {
    now += std::chrono::milliseconds{501};
    auto decisions = roster.check(now);
    if (decisions.empty())
      return "none";
    auto* few = std::get_if<too_few_hosts>(&decisions.back());
    return few ? few->reason.message : "none";
  }

  host_roster::time_point now{std::chrono::hours{1}};
  host_roster roster{{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 2, 1, 1}},
                     facts(100, "h0"),
                     host_limits{.join = std::chrono::milliseconds{500}},
                     "10.0.0.1 port 7"};
  host_decisions last;
};

} // namespace troupe::internal::test
