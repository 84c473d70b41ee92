#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

/// Why a train loop is to leave, and until when it may report.
struct stop_info {
  enum class kind_type : std::uint8_t {
    stopped,   ///< The run was stopped: the next `report` throws.
    preempted, ///< The run has to go: reports and checkpoints are still taken.
  };

  kind_type kind = kind_type::stopped;
  std::string reason; ///< For people: "SIGTERM", say.
  /// When ranks that are still in their loops are ended.
  std::chrono::system_clock::time_point deadline;

  bool operator==(const stop_info&) const = default;
};

} // namespace troupe
