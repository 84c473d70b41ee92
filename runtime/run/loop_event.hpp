#pragma once

#include <optional>
#include <string>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Kind of an event whose field `text` is shown on the console, too.
inline constexpr const char* warning_kind = "warning";

/// Something that a train loop wants to be found in the run's journal.
struct loop_event {
  std::string kind; ///< snake_case; begins with `tracker_`, or `warning_kind`.
  metrics fields;

  bool operator==(const loop_event&) const = default;
};

/// What people are to see of *x*, if it is a warning.
inline std::optional<std::string> text_of_warning(const loop_event& x) {
  auto text = x.fields.find("text");
  if (x.kind != warning_kind || !text)
    return std::nullopt;
  return to_string(*text);
}

template <class Inspector>
bool inspect(Inspector& f, loop_event& x) {
  return f.object(x).fields(f.field("kind", x.kind),
                            f.field("fields", x.fields));
}

} // namespace troupe
