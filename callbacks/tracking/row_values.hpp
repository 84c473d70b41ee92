#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe {

/// The ranks whose values of a report a tracker shows.
enum class rank_values : std::uint8_t {
  first, ///< Rank 0's, under their own names.
  mean,  ///< Numbers: the mean over the ranks that reported them; texts: the
         ///< lowest rank's.
  each,  ///< Rank 0's under their own names, and every rank's as
         ///< `rank_<r>/<name>`.
};

/// The names in saved options.
constexpr std::array<std::string_view, 3> option_names(rank_values) {
  return {"first", "mean", "each"};
}

namespace internal {

/// The number of ranks, from the first on, whose values that takes.
constexpr std::size_t ranks_for(rank_values x) {
  return x == rank_values::first ? 1 : all_ranks;
}

} // namespace internal

/// The values of *row* that a tracker shows.
metrics values_of(const journaled_batch& row, rank_values which);

/// What a tracker gets for NaN and infinities.
enum class non_finite : std::uint8_t {
  send, ///< The closest value that it can show.
  skip, ///< Nothing, as if not reported.
};

/// The names in saved options.
constexpr std::array<std::string_view, 2> option_names(non_finite) {
  return {"send", "skip"};
}

namespace internal {

/// Whether a tracker gets *x*.
inline bool is_sent(non_finite how, const metric_value& x) {
  const auto* number = std::get_if<double>(&x.variant());
  return how == non_finite::send || !number || std::isfinite(*number);
}

} // namespace internal

} // namespace troupe
