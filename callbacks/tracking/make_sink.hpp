#pragma once

#include <memory>
#include <string>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe {

/// The sink of ours that is called *name*, built from what its `options()`
/// gave. `ec::unsupported`: there is none, or its options are of another
/// version.
expected<std::unique_ptr<sink>> make_sink(const std::string& name,
                                          const std::string& options);

} // namespace troupe
