#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "troupe/runtime/rendezvous/key_value_store.hpp"

namespace troupe::internal {

/// The run's key-value store as a `c10d::Store`. Failures of the store throw
/// `train_error`.
///
/// Calls block the calling thread; `Store::setTimeout` limits them. Keep the
/// keys of an attempt in their own `c10d::PrefixStore`.
class rendezvous_store : public c10d::Store {
public:
  using bytes = std::vector<std::uint8_t>;

  /// *store* must outlive this and all its clones.
  rendezvous_store(key_value_store& store, std::chrono::milliseconds timeout)
    : Store(timeout), store_(&store) {}

  using Store::compareSet;
  using Store::set;

  // Not marked `override`: older versions of c10d have no such function.
  c10::intrusive_ptr<c10d::Store> clone();

  void set(const std::string& key, const bytes& value) override;
  bytes compareSet(const std::string& key, const bytes& current,
                   const bytes& desired) override;
  bytes get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

private:
  key_value_store* store_;
};

} // namespace troupe::internal
