#pragma once

#include <string>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Something that a train loop wants to be found in the run's journal.
struct loop_event {
  std::string kind; ///< snake_case; begins with `tracker_`.
  metrics fields;

  bool operator==(const loop_event&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, loop_event& x) {
  return f.object(x).fields(f.field("kind", x.kind),
                            f.field("fields", x.fields));
}

} // namespace troupe
