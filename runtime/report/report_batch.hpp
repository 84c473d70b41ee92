#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint_part.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// Report *index* of every rank, and what each added to the checkpoint they
/// made together, if any did.
struct report_batch {
  std::uint64_t index = 0;
  std::vector<metrics> values; ///< One entry per rank, ordered by rank.
  /// One entry per rank, ordered by rank; unset where a rank reported no files.
  /// The names are equal and no file is in two parts.
  std::vector<std::optional<checkpoint_part>> parts;
  /// Seconds each rank's loop ran since its report before, ordered by rank.
  std::vector<double> step_s;
  double wait_s = 0; ///< Seconds from the first rank's arrival to the last's.

  /// Name of the checkpoint, nullptr if no rank reported one.
  const std::string* checkpoint_name() const noexcept {
    for (auto& part : parts)
      if (part)
        return &part->name;
    return nullptr;
  }

  bool operator==(const report_batch&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, report_batch& x) {
  return f.object(x).fields(
    f.field("index", x.index), f.field("values", x.values),
    f.field("parts", x.parts), f.field("step_s", x.step_s),
    f.field("wait_s", x.wait_s));
}

} // namespace troupe
