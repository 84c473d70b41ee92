#include "troupe/actors/group_store.hpp"

#include <utility>

#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal {

caf::result<void> group_store::set(store_set& x) {
  release(table_.set(x.key, std::move(x.value)));
  return caf::unit;
}

caf::result<std::string> group_store::get(const store_get& x) {
  if (closed_for_)
    return to_caf(closed_for_);
  if (auto value = table_.find(x.key))
    return *value;
  auto id = next_waiter_++;
  table_.wait({x.key}, id);
  auto promise = self_->make_response_promise<std::string>();
  getters_.emplace(id, pending_get{x.key, promise});
  return promise;
}

caf::result<std::int64_t> group_store::add(const store_add& x) {
  auto sum = table_.add(x.key, x.amount);
  if (!sum)
    return to_caf(sum.error());
  release(sum->released);
  return sum->value;
}

caf::result<bool> group_store::check(const store_check& x) {
  return table_.check(x.keys);
}

caf::result<bool> group_store::erase(const store_erase& x) {
  return table_.erase(x.key);
}

caf::result<std::int64_t> group_store::size(const store_size&) {
  return static_cast<std::int64_t>(table_.size());
}

caf::result<void> group_store::wait(const store_wait& x) {
  if (closed_for_)
    return to_caf(closed_for_);
  auto id = next_waiter_++;
  if (table_.wait(x.keys, id))
    return caf::unit;
  auto promise = self_->make_response_promise<void>();
  waiters_.emplace(id, promise);
  return promise;
}

caf::result<std::string> group_store::compare_set(store_compare_set& x) {
  auto found =
    table_.compare_set(x.key, x.expected_value, std::move(x.desired));
  release(found.released);
  return std::move(found.value);
}

void group_store::close(const error& reason) {
  closed_for_ = reason;
  auto why = to_caf(reason);
  for (auto& [id, pending] : std::exchange(getters_, {}))
    pending.promise.deliver(why);
  for (auto& [id, promise] : std::exchange(waiters_, {}))
    promise.deliver(why);
}

void group_store::release(const rendezvous_table::waiter_list& waiters) {
  for (auto id : waiters) {
    if (auto i = waiters_.find(id); i != waiters_.end()) {
      i->second.deliver();
      waiters_.erase(i);
    } else if (auto j = getters_.find(id); j != getters_.end()) {
      j->second.promise.deliver(*table_.find(j->second.key));
      getters_.erase(j);
    }
  }
}

} // namespace troupe::internal
