#pragma once

#include <cstdint>
#include <vector>

#include "troupe/runtime/run/rank_status.hpp"

namespace troupe {

/// How the group of one attempt is.
struct group_status {
  std::uint64_t attempt = 0;
  std::vector<rank_status> ranks;   ///< Ordered by rank; empty: no group.
  std::uint64_t next_report = 0;    ///< Index of the next batch.
  std::vector<int> missing;         ///< Ranks that others wait for now.
  std::uint64_t store_keys = 0;     ///< Keys in the rendezvous store.
  std::uint64_t stale_messages = 0; ///< Messages dropped: of another attempt.

  bool operator==(const group_status&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, group_status& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("ranks", x.ranks),
    f.field("next_report", x.next_report), f.field("missing", x.missing),
    f.field("store_keys", x.store_keys),
    f.field("stale_messages", x.stale_messages));
}

} // namespace troupe
