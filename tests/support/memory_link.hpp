#pragma once

#include <memory>
#include <mutex>

#include "tests/support/memory_store.hpp"
#include "troupe/trainers/rank_link.hpp"

namespace troupe::internal::test {

/// A link for ranks without a control plane: a store in memory, aborted by the
/// test. A world that only trains needs no more.
class memory_link : public rank_link {
public:
  explicit memory_link(key_value_store& store,
                       std::optional<link_credentials> credentials = {})
    : store_(store), credentials_(std::move(credentials)) {}

  expected<void> report(rank_report, bool) override { return {}; }
  expected<void> log(loop_event) override { return {}; }
  expected<void> barrier() override { return {}; }
  expected<std::string> broadcast(expected<std::string> bytes) override {
    return bytes;
  }
  expected<std::vector<reported_checkpoint>> reported_checkpoints() override {
    return {};
  }
  expected<bool> has_checkpoint(const std::string&) override { return false; }
  key_value_store& store() override { return store_; }
  std::shared_ptr<rank_activity> activity() override { return activity_; }
  std::optional<link_credentials> credentials() const override {
    return credentials_;
  }
  bool stop_requested() const noexcept override { return false; }
  std::optional<troupe::stop_info> stop_info() const override {
    return std::nullopt;
  }

  void on_abort(std::function<void(const error&)> f) override {
    std::lock_guard guard{mutex_};
    abort_.swap(f);
  }

  /// What the control plane does when a peer fails.
  void abort(const error& reason) {
    std::lock_guard guard{mutex_};
    if (auto f = abort_) // It may remove itself.
      f(reason);
  }

  bool has_abort() {
    std::lock_guard guard{mutex_};
    return static_cast<bool>(abort_);
  }

private:
  key_value_store& store_;
  std::optional<link_credentials> credentials_;
  std::shared_ptr<rank_activity> activity_ = std::make_shared<rank_activity>();
  std::recursive_mutex mutex_;
  std::function<void(const error&)> abort_;
};

/// For a rank of its own.
inline std::shared_ptr<rank_link> make_memory_link() {
  static memory_store store;
  return std::make_shared<memory_link>(store);
}

} // namespace troupe::internal::test
