#include "troupe/runtime/rendezvous/rendezvous_table.hpp"

#include <algorithm>
#include <utility>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

rendezvous_table::waiter_list rendezvous_table::set(const std::string& key,
                                                    std::string value) {
  values_.insert_or_assign(key, std::move(value));
  return release(key);
}

const std::string* rendezvous_table::find(const std::string& key) const {
  auto i = values_.find(key);
  return i == values_.end() ? nullptr : &i->second;
}

expected<rendezvous_table::sum> rendezvous_table::add(const std::string& key,
                                                      std::int64_t amount) {
  std::int64_t value = 0;
  if (auto* text = find(key)) {
    auto number = whole_number<std::int64_t>(*text);
    if (!number)
      return failure(ec::invalid_argument,
                     "cannot add to key \"" + key
                       + "\": its value is not a decimal number of 64 bits");
    value = *number;
  }
  if (__builtin_add_overflow(value, amount, &value))
    return failure(ec::invalid_argument,
                   concat("cannot add ", amount, " to key \"", key,
                          "\": the sum does not fit 64 bits"));
  return sum{value, set(key, std::to_string(value))};
}

bool rendezvous_table::check(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(
    keys, [this](auto& key) { return values_.contains(key); });
}

rendezvous_table::exchange
rendezvous_table::compare_set(const std::string& key,
                              const std::string& expected_value,
                              std::string desired) {
  auto* now = find(key);
  if (now ? *now != expected_value : !expected_value.empty())
    return {now ? *now : std::string{}, {}};
  auto released = set(key, desired);
  return {std::move(desired), std::move(released)};
}

bool rendezvous_table::wait(const std::vector<std::string>& keys,
                            waiter_id waiter) {
  drop(waiter);
  waiter_entry entry{.order = next_order_++};
  for (auto& key : keys)
    if (!values_.contains(key))
      entry.missing.insert(key);
  if (entry.missing.empty())
    return true;
  for (auto& key : entry.missing)
    by_key_[key].emplace(entry.order, waiter);
  waiters_.emplace(waiter, std::move(entry));
  return false;
}

void rendezvous_table::drop(waiter_id waiter) {
  auto node = waiters_.extract(waiter);
  if (!node)
    return;
  for (auto& key : node.mapped().missing) {
    auto i = by_key_.find(key);
    i->second.erase(node.mapped().order);
    if (i->second.empty())
      by_key_.erase(i);
  }
}

rendezvous_table::waiter_list
rendezvous_table::release(const std::string& key) {
  auto node = by_key_.extract(key);
  if (!node)
    return {};
  waiter_list released;
  for (auto& [order, waiter] : node.mapped()) {
    auto i = waiters_.find(waiter);
    i->second.missing.erase(key);
    if (!i->second.missing.empty())
      continue;
    waiters_.erase(i);
    released.push_back(waiter);
  }
  return released;
}

} // namespace troupe::internal
