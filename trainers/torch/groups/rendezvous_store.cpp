#include "troupe/trainers/torch/groups/rendezvous_store.hpp"

#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

std::string text(const rendezvous_store::bytes& x) {
  return {x.begin(), x.end()};
}

rendezvous_store::bytes raw(const std::string& x) {
  return {x.begin(), x.end()};
}

} // namespace

c10::intrusive_ptr<c10d::Store> rendezvous_store::clone() {
  return c10::make_intrusive<rendezvous_store>(*store_, timeout_);
}

void rendezvous_store::set(const std::string& key, const bytes& value) {
  value_or_throw(store_->set(key, text(value)));
}

rendezvous_store::bytes rendezvous_store::compareSet(const std::string& key,
                                                     const bytes& current,
                                                     const bytes& desired) {
  return raw(
    value_or_throw(store_->compare_set(key, text(current), text(desired))));
}

rendezvous_store::bytes rendezvous_store::get(const std::string& key) {
  return raw(value_or_throw(store_->get(key, timeout_)));
}

std::int64_t rendezvous_store::add(const std::string& key,
                                   std::int64_t amount) {
  return value_or_throw(store_->add(key, amount));
}

bool rendezvous_store::deleteKey(const std::string& key) {
  return value_or_throw(store_->erase(key));
}

bool rendezvous_store::check(const std::vector<std::string>& keys) {
  return value_or_throw(store_->check(keys));
}

std::int64_t rendezvous_store::getNumKeys() {
  return value_or_throw(store_->size());
}

void rendezvous_store::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void rendezvous_store::wait(const std::vector<std::string>& keys,
                            const std::chrono::milliseconds& timeout) {
  value_or_throw(store_->wait(keys, timeout));
}

} // namespace troupe::internal
