#pragma once

#include "troupe/callbacks/tracking/sink_result.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe {

/// What a sink that writes files answers: storage that fails may work again,
/// and nothing of a batch is in a file until all of it is.
inline sink_result file_result(const expected<void>& x) {
  if (x)
    return {};
  return sink_fails(sink_failure::kind::transient, x.error());
}

} // namespace troupe
