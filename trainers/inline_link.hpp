#pragma once

#include <memory>

#include "troupe/runtime/rendezvous/rendezvous_table.hpp"
#include "troupe/runtime/run/loop_control.hpp"
#include "troupe/runtime/run/run_store.hpp"
#include "troupe/trainers/inline_callbacks.hpp"
#include "troupe/trainers/rank_link.hpp"

namespace troupe {

/// The control plane of a world of one: reports go straight to storage and to
/// the callbacks, on the loop's thread.
class inline_link : public rank_link, private key_value_store {
public:
  inline_link(run_store& store, inline_callbacks& callbacks,
              loop_control& control);

  expected<void> report(rank_report x, bool wait) override;
  expected<void> log(loop_event x) override;
  expected<void> barrier() override;
  expected<std::string> broadcast(expected<std::string> bytes) override;
  expected<std::vector<reported_checkpoint>> reported_checkpoints() override;
  expected<bool> has_checkpoint(const std::string& name) override;
  key_value_store& store() override { return *this; }
  std::shared_ptr<rank_activity> activity() override { return activity_; }
  bool stop_requested() const noexcept override {
    return control_.stop_requested();
  }
  std::optional<troupe::stop_info> stop_info() const override {
    return control_.stop_info();
  }
  void on_abort(std::function<void(const error&)> f) override;

  /// What the store refused first; `ec::none`: nothing. No call succeeds after
  /// it, and the run ends with it, whatever the loop makes of its exceptions.
  const error& refusal() const noexcept { return refusal_; }

private:
  /// Why the loop must not go on, if so.
  expected<void> check() const;
  tl::unexpected<error> refuse(error reason);

  expected<void> set(const std::string& key, std::string value) override;
  expected<std::string> get(const std::string& key, timeout limit) override;
  expected<std::int64_t> add(const std::string& key,
                             std::int64_t amount) override;
  expected<bool> check(const std::vector<std::string>& keys) override;
  expected<void> wait(const std::vector<std::string>& keys,
                      timeout limit) override;
  expected<bool> erase(const std::string& key) override;
  expected<std::int64_t> size() override;
  expected<std::string> compare_set(const std::string& key,
                                    const std::string& expected_value,
                                    std::string desired) override;

  run_store& run_;
  inline_callbacks& callbacks_;
  loop_control& control_;
  error refusal_;
  rendezvous_table table_;
  std::shared_ptr<rank_activity> activity_ = std::make_shared<rank_activity>();
};

} // namespace troupe
