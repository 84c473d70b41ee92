#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <troupe/train.hpp>

namespace troupe::internal::test {

/// Does something of the test's when a report is stored.
class report_hook : public user_callback {
public:
  using hook = std::function<void(std::uint64_t number, const metrics& first)>;

  explicit report_hook(hook f) : hook_(std::move(f)) {}

  void after_report(const run_context&, const std::vector<metrics>& values,
                    const std::optional<checkpoint>&) override {
    hook_(number_++, values.front());
  }

private:
  hook hook_;
  std::uint64_t number_ = 0;
};

/// A callback that does *act* after report *number*, once.
inline std::shared_ptr<user_callback> on_report(std::uint64_t number,
                                                std::function<void()> act) {
  return std::make_shared<report_hook>(
    [=, act = std::move(act)](std::uint64_t n, const metrics&) {
      if (n == number)
        act();
    });
}

} // namespace troupe::internal::test
