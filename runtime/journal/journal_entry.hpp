#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/history_row.hpp"

namespace troupe {

/// Something that happened to a run, as its journal has it.
struct journal_event {
  std::string kind; ///< snake_case, such as `attempt_started`.
  std::uint64_t attempt = 0;
  std::chrono::system_clock::time_point time;
  metrics fields;
};

/// One line of a journal: a report batch or an event.
using journal_entry = std::variant<history_row, journal_event>;

} // namespace troupe
