#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/each_field.hpp"

// What a rank asks the rendezvous store of its worker group. Requests of
// another attempt are refused.

namespace troupe::internal {

struct store_set {
  std::uint64_t attempt = 0;
  std::string key;
  std::string value;
};

TROUPE_INSPECT(store_set, attempt, key, value)

/// Answered once *key* exists.
struct store_get {
  std::uint64_t attempt = 0;
  std::string key;
};

TROUPE_INSPECT(store_get, attempt, key)

struct store_add {
  std::uint64_t attempt = 0;
  std::string key;
  std::int64_t amount = 0;
};

TROUPE_INSPECT(store_add, attempt, key, amount)

/// Whether all *keys* exist now.
struct store_check {
  std::uint64_t attempt = 0;
  std::vector<std::string> keys;
};

TROUPE_INSPECT(store_check, attempt, keys)

/// Answered once all *keys* exist.
struct store_wait {
  std::uint64_t attempt = 0;
  std::vector<std::string> keys;
};

TROUPE_INSPECT(store_wait, attempt, keys)

struct store_erase {
  std::uint64_t attempt = 0;
  std::string key;
};

TROUPE_INSPECT(store_erase, attempt, key)

struct store_size {
  std::uint64_t attempt = 0;
};

TROUPE_INSPECT(store_size, attempt)

struct store_compare_set {
  std::uint64_t attempt = 0;
  std::string key;
  std::string expected_value;
  std::string desired;
};

TROUPE_INSPECT(store_compare_set, attempt, key, expected_value, desired)

} // namespace troupe::internal
