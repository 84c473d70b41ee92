#include "troupe/trainers/remote_store.hpp"

#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// The answer *x*; the error of one that did not come in time names *key*.
template <class T>
expected<T> name_key(expected<T> x, const std::string& key,
                     key_value_store::timeout limit) {
  if (!x && x.error().code == ec::timeout)
    return failure(ec::timeout, concat("the rendezvous store has no key '", key,
                                       "' after ", duration_text(limit)));
  return x;
}

} // namespace

error request_error(const agent_link& link, const caf::error& reason) {
  if (link.control->ended())
    return link.control->reason();
  auto result = from_caf(reason);
  if (result.code == ec::protocol)
    result.message = concat("rank ", link.rank, ": ", result.message);
  return result;
}

template <class Answer, class Timeout, class Message>
expected<Answer> remote_store::ask(Timeout limit, Message message) {
  caf::scoped_actor self{system_};
  return request_answer<Answer>(*self, link_, limit, std::move(message));
}

expected<void> remote_store::set(const std::string& key, std::string value) {
  return ask<void>(caf::infinite,
                   store_set{link_.attempt, key, std::move(value)});
}

expected<std::string> remote_store::get(const std::string& key, timeout limit) {
  auto shown = link_.activity->get();
  activity_scope here{shown->at_store};
  return name_key(ask<std::string>(limit, store_get{link_.attempt, key}), key,
                  limit);
}

expected<std::int64_t> remote_store::add(const std::string& key,
                                         std::int64_t amount) {
  return ask<std::int64_t>(caf::infinite,
                           store_add{link_.attempt, key, amount});
}

expected<bool> remote_store::check(const std::vector<std::string>& keys) {
  return ask<bool>(caf::infinite, store_check{link_.attempt, keys});
}

expected<void> remote_store::wait(const std::vector<std::string>& keys,
                                  timeout limit) {
  auto shown = link_.activity->get();
  activity_scope here{shown->at_store};
  return name_key(ask<void>(limit, store_wait{link_.attempt, keys}),
                  keys.empty() ? std::string{} : keys.front(), limit);
}

expected<bool> remote_store::erase(const std::string& key) {
  return ask<bool>(caf::infinite, store_erase{link_.attempt, key});
}

expected<std::int64_t> remote_store::size() {
  return ask<std::int64_t>(caf::infinite, store_size{link_.attempt});
}

expected<std::string>
remote_store::compare_set(const std::string& key,
                          const std::string& expected_value,
                          std::string desired) {
  return ask<std::string>(
    caf::infinite,
    store_compare_set{link_.attempt, key, expected_value, std::move(desired)});
}

} // namespace troupe::internal
