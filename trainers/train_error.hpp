#pragma once

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Leaves the train loop when a call of its context cannot succeed: bad
/// arguments, a failed peer, full storage.
class train_error : public std::runtime_error {
public:
  explicit train_error(error reason)
    : std::runtime_error(reason.message), reason_(std::move(reason)) {}

  const error& reason() const noexcept { return reason_; }

private:
  error reason_;
};

/// The value of *x*; throws its error as `train_error`.
template <class T>
T value_or_throw(expected<T> x) {
  if (!x)
    throw train_error{std::move(x.error())};
  if constexpr (!std::is_void_v<T>)
    return std::move(*x);
}

/// Leaves the train loop because the run stops. Do not catch it: it is not a
/// failure of the rank.
class run_stopped : public train_error {
  using train_error::train_error;
};

namespace internal {

/// Throws *reason* in a train loop.
[[noreturn]] inline void leave_loop(error reason) {
  if (reason.code == ec::stopped)
    throw run_stopped{std::move(reason)};
  throw train_error{std::move(reason)};
}

} // namespace internal

} // namespace troupe
