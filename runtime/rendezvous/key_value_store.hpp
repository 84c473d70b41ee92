#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// The rendezvous store as a rank sees it: keys and values of one
/// attempt.
///
/// Calls block the rank's own thread, never an actor. A store whose attempt has
/// ended fails every call with `ec::stopped`.
class key_value_store {
public:
  using timeout = std::chrono::milliseconds;

  virtual ~key_value_store() = default;

  virtual expected<void> set(const std::string& key, std::string value) = 0;

  /// Waits until *key* exists; `ec::timeout` names the key after *limit*.
  virtual expected<std::string> get(const std::string& key, timeout limit) = 0;

  /// Adds *amount* to a decimal number (0 if missing) and returns the sum.
  virtual expected<std::int64_t> add(const std::string& key,
                                     std::int64_t amount) = 0;

  /// Whether all *keys* exist now; never waits.
  virtual expected<bool> check(const std::vector<std::string>& keys) = 0;

  virtual expected<void> wait(const std::vector<std::string>& keys,
                              timeout limit) = 0;

  /// Whether there was such a key.
  virtual expected<bool> erase(const std::string& key) = 0;

  virtual expected<std::int64_t> size() = 0;

  /// Sets *key* to *desired* if its value is *expected_value* (a missing key
  /// counts as empty); returns what it is now.
  virtual expected<std::string> compare_set(const std::string& key,
                                            const std::string& expected_value,
                                            std::string desired) = 0;
};

} // namespace troupe::internal
