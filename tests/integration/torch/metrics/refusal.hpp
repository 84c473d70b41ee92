#pragma once

#include <string>

#include <gtest/gtest.h>

#include "troupe/trainers/train_context.hpp"

namespace troupe::internal::test {

/// The message of the `train_error` for bad arguments that *f* throws.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const train_error& e) {
    EXPECT_EQ(e.reason().code, ec::invalid_argument);
    return e.what();
  }
  ADD_FAILURE() << "it was not refused";
  return {};
}

} // namespace troupe::internal::test
