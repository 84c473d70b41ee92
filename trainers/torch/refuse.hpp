#pragma once

#include <string>
#include <utility>

#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// Throws a `train_error` because of an argument that makes no sense.
[[noreturn]] inline void refuse(std::string why) {
  throw train_error{{ec::invalid_argument, std::move(why)}};
}

} // namespace troupe
