#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe {

/// How a run stands on storage. Only `finished` closes its name: a run of any
/// other kind is resumed when its name is used again.
enum class run_status_kind : std::uint8_t {
  running,   ///< Not ended yet, or its driver died.
  finished,  ///< Every rank returned from its loop.
  errored,   ///< It failed more often than it may.
  aborted,   ///< It was asked to stop.
  preempted, ///< It had to go, with time for a last checkpoint.
};

std::string_view to_string(run_status_kind x) noexcept;

/// The kind called *name*; nothing if there is none.
std::optional<run_status_kind>
run_status_from_string(std::string_view name) noexcept;

} // namespace troupe
