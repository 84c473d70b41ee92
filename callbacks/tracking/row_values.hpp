#pragma once

#include <cstddef>
#include <cstdint>

#include "troupe/runtime/journal/journal_line.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/history_row.hpp"

namespace troupe {

/// Whose values of a report a tracker shows.
enum class rank_values : std::uint8_t {
  first, ///< Rank 0's, under their own names.
  mean,  ///< Numbers: the mean over the ranks that reported them, under their
         ///< own names; texts: the lowest rank's.
  each,  ///< Rank 0's under their own names, and every rank's as
         ///< `rank_<r>/<name>`.
};

/// Of how many ranks, from the first on, the values are needed for that.
constexpr std::size_t ranks_for(rank_values x) {
  return x == rank_values::first ? 1 : all_ranks;
}

/// The values of *row* that a tracker shows.
metrics values_of(const history_row& row, rank_values which);

} // namespace troupe
