#pragma once

#include <utility>

namespace troupe {

/// While it lives, gradients stay on this rank and add up: for all but the last
/// of several small batches. Forward and backward both have to lie inside.
class [[nodiscard]] no_sync_guard {
public:
  explicit no_sync_guard(bool& sync)
    : sync_(&sync), before_(std::exchange(sync, false)) {}
  no_sync_guard(no_sync_guard&& other) noexcept
    : sync_(std::exchange(other.sync_, nullptr)), before_(other.before_) {}
  ~no_sync_guard() {
    if (sync_)
      *sync_ = before_;
  }

  no_sync_guard& operator=(no_sync_guard&&) = delete;

private:
  bool* sync_;
  bool before_;
};

} // namespace troupe
