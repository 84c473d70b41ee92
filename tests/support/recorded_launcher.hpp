#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "troupe/actors/rank_launcher.hpp"

namespace troupe::internal::test {

/// Starts nothing and records the requests. The test informs the listener about
/// the ranks.
class recorded_launcher : public rank_launcher {
public:
  struct launch_order {
    std::uint64_t attempt = 0;
    int rank = 0;
    int segment = -1;
    events listener;
  };

  void launch(std::uint64_t attempt, int rank, int segment,
              const events& listener) override {
    launched.push_back({attempt, rank, segment, listener});
  }

  void kill(int rank) override { killed.push_back(rank); }

  bool has_ended(int rank) override { return ended.contains(rank); }

  std::optional<process_vitals> vitals(int rank) override {
    auto i = lives.find(rank);
    return i == lives.end() ? std::nullopt : std::optional{i->second};
  }

  bool is_stopped(int rank) override {
    auto i = lives.find(rank);
    return i != lives.end() && i->second.stopped;
  }

  bool show_stacks(int rank) override {
    asked.push_back(rank);
    return true;
  }

  /// The listener for *rank* of the last attempt.
  const events& listener(int rank) const {
    auto i = std::find_if(launched.rbegin(), launched.rend(),
                          [rank](auto& x) { return x.rank == rank; });
    if (i == launched.rend())
      throw std::out_of_range{"rank " + std::to_string(rank)
                              + " was not launched"};
    return i->listener;
  }

  std::vector<launch_order> launched;
  std::vector<int> killed;
  std::set<int> ended;                 ///< Ranks whose processes have ended.
  std::vector<int> asked;              ///< Ranks whose stacks were requested.
  std::map<int, process_vitals> lives; ///< By rank; others cannot be observed.
};

} // namespace troupe::internal::test
