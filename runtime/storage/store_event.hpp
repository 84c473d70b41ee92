#pragma once

#include <string>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Something that happened to a run's files and that no one asked for: a rotten
/// checkpoint set aside, a journal's tail cut. Every one ends in the journal.
struct store_event {
  std::string kind;    ///< snake_case, such as `checkpoint_rotten`.
  metrics fields;      ///< Names, paths, reasons.
  bool stored = false; ///< In the journal already.

  bool operator==(const store_event&) const = default;
};

} // namespace troupe
