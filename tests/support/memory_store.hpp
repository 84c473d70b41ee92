#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "troupe/runtime/rendezvous/key_value_store.hpp"

namespace troupe::internal::test {

/// A rendezvous store for ranks that are threads of one process.
class memory_store : public key_value_store {
public:
  expected<void> set(const std::string& key, std::string value) override {
    std::lock_guard guard{mutex_};
    values_[key] = std::move(value);
    changed_.notify_all();
    return {};
  }

  expected<std::string> get(const std::string& key, timeout limit) override {
    if (auto there = wait({key}, limit); !there)
      return tl::unexpected{there.error()};
    std::lock_guard guard{mutex_};
    return values_[key];
  }

  expected<std::int64_t> add(const std::string& key,
                             std::int64_t amount) override {
    std::lock_guard guard{mutex_};
    auto& value = values_[key];
    auto sum = (value.empty() ? 0 : std::stoll(value)) + amount;
    value = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }

  expected<bool> check(const std::vector<std::string>& keys) override {
    std::lock_guard guard{mutex_};
    return has(keys);
  }

  expected<void> wait(const std::vector<std::string>& keys,
                      timeout limit) override {
    std::unique_lock guard{mutex_};
    if (!changed_.wait_for(guard, limit, [&] { return has(keys); }))
      return failure(ec::timeout, "no key " + keys.front());
    return {};
  }

  expected<bool> erase(const std::string& key) override {
    std::lock_guard guard{mutex_};
    return values_.erase(key) != 0;
  }

  expected<std::int64_t> size() override {
    std::lock_guard guard{mutex_};
    return static_cast<std::int64_t>(values_.size());
  }

  expected<std::string> compare_set(const std::string& key,
                                    const std::string& expected_value,
                                    std::string desired) override {
    std::lock_guard guard{mutex_};
    auto& value = values_[key];
    if (value == expected_value)
      value = std::move(desired);
    changed_.notify_all();
    return value;
  }

private:
  bool has(const std::vector<std::string>& keys) const {
    for (auto& key : keys)
      if (!values_.contains(key))
        return false;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

} // namespace troupe::internal::test
