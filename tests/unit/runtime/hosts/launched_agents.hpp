#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "troupe/runtime/hosts/host_launcher.hpp"

namespace troupe::internal::test {

/// Records what a host launcher says, and waits for it.
class launch_records {
public:
  launch_listener listener() {
    return {[this](std::uint64_t launch) {
              std::lock_guard guard{mutex_};
              delivered_.insert(launch);
              changed_.notify_all();
            },
            [this](launch_end x) {
              std::lock_guard guard{mutex_};
              ends_[x.launch].push_back(std::move(x));
              changed_.notify_all();
            },
            [this](std::uint64_t launch, std::string words) {
              std::lock_guard guard{mutex_};
              said_[launch] = std::move(words);
              changed_.notify_all();
            }};
  }

  /// The first end of *launch*; the test's time limit is the bound.
  launch_end end_of(std::uint64_t launch) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return ends_.contains(launch); });
    return ends_[launch].front();
  }

  void wait_for_delivery(std::uint64_t launch) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return delivered_.contains(launch); });
  }

  /// What the launcher has said although it has not ended.
  std::string words_of(std::uint64_t launch) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return said_.contains(launch); });
    return said_[launch];
  }

  std::set<std::uint64_t> delivered() {
    std::lock_guard guard{mutex_};
    return delivered_;
  }

  std::size_t ends_of(std::uint64_t launch) {
    std::lock_guard guard{mutex_};
    auto i = ends_.find(launch);
    return i == ends_.end() ? 0 : i->second.size();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint64_t> delivered_;
  std::map<std::uint64_t, std::vector<launch_end>> ends_;
  std::map<std::uint64_t, std::string> said_;
};

} // namespace troupe::internal::test
