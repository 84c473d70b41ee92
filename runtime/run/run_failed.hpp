#pragma once

#include <stdexcept>

#include "troupe/runtime/run/run_error.hpp"

namespace troupe {

/// Thrown by `result::value_or_throw` for a run that did not finish.
class run_failed : public std::runtime_error {
public:
  explicit run_failed(run_error reason)
    : std::runtime_error(reason.message), reason_(std::move(reason)) {}

  const run_error& reason() const noexcept { return reason_; }

private:
  run_error reason_;
};

} // namespace troupe
