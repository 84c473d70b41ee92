#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// The keys and values of one attempt's rendezvous, and which waiters wait for
/// them: the logic behind every `key_value_store`.
///
/// Counters are kept as decimal text, as c10d stores keep them, so that `get`
/// reads what `add` wrote. Waiters are ids of the caller's choice; limits on
/// waiting are the caller's too.
class rendezvous_table {
public:
  using waiter_id = std::uint64_t;
  using waiter_list = std::vector<waiter_id>;

  /// Returns the waiters whose last missing key was *key*, in the order of
  /// their `wait`.
  waiter_list set(const std::string& key, std::string value);

  /// The value of *key* or nullptr.
  const std::string* find(const std::string& key) const;

  struct sum {
    std::int64_t value = 0;
    waiter_list released;
  };

  /// Adds *amount* to a decimal number, 0 if missing. `ec::invalid_argument`:
  /// the value is not a number, or the sum does not fit 64 bits.
  expected<sum> add(const std::string& key, std::int64_t amount);

  /// Whether all *keys* exist.
  bool check(const std::vector<std::string>& keys) const;

  /// Whether there was such a key. Waiters already released by this key are not
  /// affected.
  bool erase(const std::string& key) { return values_.erase(key) != 0; }

  std::size_t size() const noexcept { return values_.size(); }

  struct exchange {
    std::string value; ///< What *key* is now; empty if it is missing.
    waiter_list released;
  };

  /// Sets *key* to *desired* if its value is *expected_value*; a missing key
  /// counts as empty.
  exchange compare_set(const std::string& key,
                       const std::string& expected_value, std::string desired);

  /// True if all *keys* exist. Otherwise the call that sets the last one
  /// returns *waiter*, once. An id that waits already starts over.
  bool wait(const std::vector<std::string>& keys, waiter_id waiter);

private:
  struct waiter_entry {
    std::uint64_t order = 0;
    std::set<std::string> missing;
  };

  void drop(waiter_id waiter);
  waiter_list release(const std::string& key);

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<waiter_id, waiter_entry> waiters_;
  std::unordered_map<std::string, std::map<std::uint64_t, waiter_id>> by_key_;
  std::uint64_t next_order_ = 0;
};

} // namespace troupe::internal
