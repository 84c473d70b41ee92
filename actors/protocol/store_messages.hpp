#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What a rank asks the rendezvous store of its worker group. Requests of
// another attempt are refused.

namespace troupe::internal {

struct store_set {
  std::uint64_t attempt = 0;
  std::string key;
  std::string value;
};

template <class Inspector>
bool inspect(Inspector& f, store_set& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key), f.field("value", x.value));
}

/// Answered once *key* exists.
struct store_get {
  std::uint64_t attempt = 0;
  std::string key;
};

template <class Inspector>
bool inspect(Inspector& f, store_get& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key));
}

struct store_add {
  std::uint64_t attempt = 0;
  std::string key;
  std::int64_t amount = 0;
};

template <class Inspector>
bool inspect(Inspector& f, store_add& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key), f.field("amount", x.amount));
}

/// Whether all *keys* exist now.
struct store_check {
  std::uint64_t attempt = 0;
  std::vector<std::string> keys;
};

template <class Inspector>
bool inspect(Inspector& f, store_check& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("keys", x.keys));
}

/// Answered once all *keys* exist.
struct store_wait {
  std::uint64_t attempt = 0;
  std::vector<std::string> keys;
};

template <class Inspector>
bool inspect(Inspector& f, store_wait& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("keys", x.keys));
}

struct store_erase {
  std::uint64_t attempt = 0;
  std::string key;
};

template <class Inspector>
bool inspect(Inspector& f, store_erase& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key));
}

struct store_size {
  std::uint64_t attempt = 0;
};

template <class Inspector>
bool inspect(Inspector& f, store_size& x) {
  return f.object(x).fields(f.field("attempt", x.attempt));
}

struct store_compare_set {
  std::uint64_t attempt = 0;
  std::string key;
  std::string expected_value;
  std::string desired;
};

template <class Inspector>
bool inspect(Inspector& f, store_compare_set& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("key", x.key),
    f.field("expected_value", x.expected_value), f.field("desired", x.desired));
}

} // namespace troupe::internal
