// What the WORKER GROUP does as the rendezvous store of its ranks.

#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/worker_group.hpp"

namespace troupe::internal {

namespace {

/// What *answer* makes of the attempt of the message *x*, or that it is over.
template <class Result, class Slot, class Message, class Answer>
caf::result<Result> answer_in(Slot& slot, const Message& x, Answer answer) {
  if (auto a = slot.current(x.attempt))
    return answer(*a);
  return to_caf(slot.too_late(x.attempt));
}

} // namespace

caf::result<void> worker_group_state::set(store_set& x) {
  return answer_in<void>(attempt, x, [&](attempt_state& a) {
    release(a.store.set(x.key, std::move(x.value)));
    return caf::unit;
  });
}

caf::result<std::string> worker_group_state::get(const store_get& x) {
  auto open = attempt.open(x.attempt);
  if (!open)
    return to_caf(open.error());
  auto a = *open;
  if (auto value = a->store.find(x.key))
    return *value;
  auto id = a->next_waiter++;
  a->store.wait({x.key}, id);
  auto promise = self->make_response_promise<std::string>();
  a->getters.emplace(id, pending_get{x.key, promise});
  return promise;
}

caf::result<std::int64_t> worker_group_state::add(const store_add& x) {
  auto answer = [&](attempt_state& a) -> caf::result<std::int64_t> {
    auto sum = a.store.add(x.key, x.amount);
    if (!sum)
      return to_caf(sum.error());
    release(sum->released);
    return sum->value;
  };
  return answer_in<std::int64_t>(attempt, x, answer);
}

caf::result<bool> worker_group_state::check(const store_check& x) {
  return answer_in<bool>(
    attempt, x, [&](attempt_state& a) { return a.store.check(x.keys); });
}

caf::result<bool> worker_group_state::erase(const store_erase& x) {
  return answer_in<bool>(
    attempt, x, [&](attempt_state& a) { return a.store.erase(x.key); });
}

caf::result<std::int64_t> worker_group_state::size(const store_size& x) {
  return answer_in<std::int64_t>(attempt, x, [](attempt_state& a) {
    return static_cast<std::int64_t>(a.store.size());
  });
}

caf::result<void> worker_group_state::wait(const store_wait& x) {
  auto open = attempt.open(x.attempt);
  if (!open)
    return to_caf(open.error());
  auto a = *open;
  auto id = a->next_waiter++;
  if (a->store.wait(x.keys, id))
    return caf::unit;
  auto promise = self->make_response_promise<void>();
  a->waiters.emplace(id, promise);
  return promise;
}

caf::result<std::string> worker_group_state::compare_set(store_compare_set& x) {
  return answer_in<std::string>(attempt, x, [&](attempt_state& a) {
    auto found =
      a.store.compare_set(x.key, x.expected_value, std::move(x.desired));
    release(found.released);
    return std::move(found.value);
  });
}

void worker_group_state::release(const rendezvous_table::waiter_list& ids) {
  for (auto id : ids) {
    if (auto i = attempt->waiters.find(id); i != attempt->waiters.end()) {
      i->second.deliver();
      attempt->waiters.erase(i);
    } else if (auto j = attempt->getters.find(id);
               j != attempt->getters.end()) {
      j->second.promise.deliver(*attempt->store.find(j->second.key));
      attempt->getters.erase(j);
    }
  }
}

} // namespace troupe::internal
