#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "troupe/actors/rank_launcher.hpp"

namespace troupe::internal::test {

/// Starts nothing and records the requests. The test calls the listeners with
/// what became of the ranks.
class recorded_launcher : public rank_launcher {
public:
  struct launch_order {
    std::uint64_t attempt = 0;
    int rank = 0;
    int segment = -1;
    listener tell;
  };

  void prepare(start_ranks& x) override {
    for (auto& facts : x.ranks)
      facts.cores = {facts.local_rank};
    prepared = x.ranks;
  }

  void launch(std::uint64_t attempt, int rank, int segment,
              const listener& tell) override {
    launched.push_back({attempt, rank, segment, tell});
  }

  void kill(int rank) override { killed.push_back(rank); }

  bool has_ended(int rank) override {
    ++looks;
    return ended.contains(rank);
  }

  std::optional<process_vitals> vitals(int rank) override {
    auto i = lives.find(rank);
    return i == lives.end() ? std::nullopt : std::optional{i->second};
  }

  bool is_stopped(int rank) override {
    ++looks;
    auto i = lives.find(rank);
    return i != lives.end() && i->second.stopped;
  }

  bool show_stacks(int rank) override {
    asked.push_back(rank);
    return true;
  }

  /// The last launch of *rank* has succeeded with *pid* ...
  void start(int rank, int pid) {
    auto& order = last(rank);
    order.tell(rank_launched{order.attempt, rank, pid});
  }

  /// ... or failed, ...
  void fail(int rank, error reason) {
    auto& order = last(rank);
    order.tell(rank_launch_failed{order.attempt, rank, std::move(reason)});
  }

  /// ... or what it started has ended.
  void exit(int rank, process_exit cause) {
    auto& order = last(rank);
    order.tell(rank_exited{order.attempt, rank, std::move(cause)});
  }

  std::vector<launch_order> launched;
  std::vector<rank_facts> prepared; ///< Of the last attempt.
  std::vector<int> killed;
  std::set<int> ended;                 ///< Ranks whose processes have ended.
  int looks = 0;                       ///< At one process each.
  std::vector<int> asked;              ///< Ranks whose stacks were requested.
  std::map<int, process_vitals> lives; ///< By rank; others cannot be observed.

private:
  const launch_order& last(int rank) const {
    auto i = std::find_if(launched.rbegin(), launched.rend(),
                          [rank](auto& x) { return x.rank == rank; });
    if (i == launched.rend())
      throw std::out_of_range{"rank " + std::to_string(rank)
                              + " was not launched"};
    return *i;
  }
};

} // namespace troupe::internal::test
