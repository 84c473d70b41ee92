// HS-1 to HS-5 of host_states.hpp under events in any order.

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "troupe/runtime/hosts/host_states.hpp"

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using time_point = host_states::time_point;

/// Random events, checked against the invariants.
class random_hosts {
public:
  explicit random_hosts(unsigned seed) : random_{seed} {}

  void run() {
    follow(states_.gather(now_, limits.join));
    for (int i = 0; i < 3000; ++i) {
      auto host = below(count);
      auto incarnation = 1 + below(5) + 5 * (epoch_ / 300);
      ++epoch_;
      now_ += milliseconds{below(2500)};
      switch (below(10)) {
        case 0:
        case 1:
          hello(host, incarnation);
          break;
        case 2:
          follow(states_.on_tick(host, incarnation, now_));
          break;
        case 3:
          follow(states_.on_launched(host, launches_[host], now_));
          break;
        case 4:
          launching_.erase(host);
          follow(states_.on_launcher_ended(host, launches_[host], "words",
                                           below(8) != 0, now_));
          break;
        case 5:
          if (below(8) == 0)
            follow(states_.on_draining(host, incarnation, seconds{9}, now_));
          break;
        case 6:
          follow(states_.on_start_failed({host}, now_, now_));
          follow(states_.on_attempt_ended(now_));
          states_.on_attempt_started(states_.usable());
          if (below(4) == 0)
            progress();
          break;
        case 7:
          if (!gathering_) {
            gathering_ = true;
            follow(states_.gather(now_, seconds{below(100)}));
          }
          break;
        case 8:
          if (below(8) == 0)
            follow(states_.on_gone(host, incarnation, "lost", now_));
          break;
        default:
          follow(states_.check(now_));
      }
    }
  }

private:
  static constexpr std::size_t count = 4;
  static constexpr host_limits limits{.max_relaunches = 4, .min_ranks = 2};

  std::size_t below(std::size_t n) { return random_() % n; }

  void hello(std::size_t host, std::uint64_t incarnation) {
    auto is_free = !states_.hosts()[host].is_here();
    auto was_fenced = fenced_.contains({host, incarnation});
    follow(states_.on_hello(host, incarnation, now_));
    if (was_fenced) { // HS-1
      EXPECT_FALSE(is_here(host, incarnation));
    } else if (is_free) {
      EXPECT_TRUE(is_here(host, incarnation));
    }
  }

  void progress() {
    states_.on_progress();
    for (std::size_t i = 0; i < count; ++i)
      if (states_.hosts()[i].state == host_state::serving)
        launches_in_a_row_[i] = std::min(launches_in_a_row_[i], 1);
  }

  /// Whether the agent counts.
  bool is_here(std::size_t host, std::uint64_t incarnation) const {
    auto& x = states_.hosts()[host];
    return x.is_here() && x.incarnation == incarnation;
  }

  void follow(const host_decisions& decisions) {
    for (const auto& x : decisions) {
      if (auto* launch = std::get_if<launch_agent>(&x)) {
        EXPECT_FALSE(launching_.contains(launch->host)); // HS-2
        launching_.insert(launch->host);
        launches_[launch->host] = launch->launch;
        auto late =
          (now_ - time_point{}) / host_states::late_launch_delay.first;
        EXPECT_LE(++launches_in_a_row_[launch->host],
                  limits.max_relaunches + 1 + late); // HS-3
      } else if (auto* end = std::get_if<end_launcher>(&x)) {
        EXPECT_EQ(end->launch, launches_[end->host]);
        launching_.erase(end->host);
      } else if (auto* fence = std::get_if<fence_agent>(&x)) {
        // A tick of an agent that never said hello is refused, too.
        if (states_.hosts()[fence->host].state != host_state::expected)
          note_fence(*fence);
      } else if (auto* left_out = std::get_if<host_left_out>(&x)) {
        EXPECT_NE(left_out->host, 0u); // HS-5
        EXPECT_GE(static_cast<int>(states_.usable().size()), limits.min_ranks);
      } else if (std::holds_alternative<start_with_hosts>(x)
                 || std::holds_alternative<too_few_hosts>(x)) {
        EXPECT_TRUE(gathering_); // HS-4
        gathering_ = false;
        if (auto* start = std::get_if<start_with_hosts>(&x)) {
          EXPECT_GE(static_cast<int>(start->hosts.size()), limits.min_ranks);
        } else {
          EXPECT_TRUE(std::ranges::none_of(states_.hosts(), [](auto& host) {
            return host.left_out_until.has_value();
          })); // HS-5
        }
      }
    }
  }

  void note_fence(const fence_agent& x) {
    EXPECT_FALSE(is_here(x.host, x.incarnation));
    if (said_hello_before(x))
      fenced_.insert({x.host, x.incarnation});
  }

  bool said_hello_before(const fence_agent& x) {
    auto& fenced = states_.hosts()[x.host].fenced;
    return std::ranges::find(fenced, x.incarnation) != fenced.end();
  }

  std::minstd_rand random_;
  host_states states_{
    {{"a"}, {"b"}, {"c"}, {"d"}}, limits, "here", [] { return 0.0; }};
  time_point now_{seconds{1000}};
  std::size_t epoch_ = 0;
  bool gathering_ = true;
  std::map<std::size_t, std::uint64_t> launches_;
  std::map<std::size_t, int> launches_in_a_row_;
  std::set<std::size_t> launching_;
  std::set<std::pair<std::size_t, std::uint64_t>> fenced_;
};

TEST(host_states_invariants_test, hold_whatever_happens) {
  for (unsigned seed = 1; seed <= 20; ++seed)
    random_hosts{seed}.run();
}

} // namespace
} // namespace troupe::internal
