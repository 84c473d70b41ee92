#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// How one rank is.
struct rank_status {
  enum class phase : std::uint8_t {
    starting, ///< Its process or thread is on the way.
    running,  ///< Its loop runs.
    ended,    ///< Its loop returned.
    failed,   ///< It ended before its loop returned.
  };

  int rank = 0;
  phase where = phase::starting;
  std::int64_t pid = 0; ///< 0: not known yet.
  std::string host;
  std::uint64_t reports = 0; ///< Reports of this attempt that arrived.
  /// Where its loop is, such as "in report 3" or "in its data loader for 4 s".
  std::string place;

  bool operator==(const rank_status&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, rank_status& x) {
  auto get = [&x] { return static_cast<std::uint8_t>(x.where); };
  auto set = [&x](std::uint8_t where) {
    x.where = static_cast<rank_status::phase>(where);
    return where <= static_cast<std::uint8_t>(rank_status::phase::failed);
  };
  return f.object(x).fields(f.field("rank", x.rank), f.field("where", get, set),
                            f.field("pid", x.pid), f.field("host", x.host),
                            f.field("reports", x.reports),
                            f.field("place", x.place));
}

} // namespace troupe
