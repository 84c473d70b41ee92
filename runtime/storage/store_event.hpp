#pragma once

#include <functional>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Something that happened to a run's files and that no one asked for: a rotten
/// checkpoint set aside, a journal's tail cut. Every one ends in the journal.
struct store_event {
  std::string kind;    ///< snake_case, such as `checkpoint_rotten`.
  metrics fields;      ///< Names, paths, reasons.
  bool stored = false; ///< In the journal already.
  std::string text;    ///< For people; empty: kind and fields.

  bool operator==(const store_event&) const = default;
};

/// Who notes such events.
using store_event_listener = std::function<expected<void>(store_event)>;

inline expected<void> ignore_store_event(store_event) {
  return {};
}

/// A line for people.
inline std::string to_string(const store_event& x) {
  return x.text.empty() ? x.kind + ": " + to_string(x.fields) : x.text;
}

} // namespace troupe
