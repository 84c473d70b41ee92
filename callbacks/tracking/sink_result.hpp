#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Why a tracker did not take records, and what is to be done about it.
struct sink_failure {
  enum class kind {
    transient, ///< Another attempt may succeed: down, busy, slow.
    rejected,  ///< These records are refused whenever they are sent; others may
               ///< be taken.
    permanent, ///< Nothing is taken before someone changes something: a
               ///< credential, a name, a right.
  };

  kind what = kind::transient;
  /// One sentence; names the variable or setting that would help. Never holds
  /// a secret.
  error reason;
  /// When the tracker wants to be asked again.
  std::optional<std::chrono::seconds> retry_after;
  /// How many records, from the first on, are with the tracker for good.
  std::size_t accepted = 0;
  /// Of a transient failure: the tracker took the request and broke on it
  /// (HTTP 500), so that these very records may be the reason.
  bool suspect = false;
};

/// Nothing, or why not.
using sink_result = tl::expected<void, sink_failure>;

inline tl::unexpected<sink_failure>
sink_fails(sink_failure::kind what, error reason, std::size_t accepted = 0) {
  return tl::unexpected{
    sink_failure{what, std::move(reason), std::nullopt, accepted}};
}

} // namespace troupe
