#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace troupe {

/// What callbacks know about the run they are called for.
struct run_context {
  using clock = std::chrono::system_clock;

  std::string name;
  std::string path; ///< Absolute folder of the run.
  std::string id;   ///< 32 hex digits; the same in every life of the run.
  std::uint64_t attempt = 0;
  int world_size = 0;
  /// Of the report that callbacks are told of, or were told of last. With `id`
  /// and `attempt` it tells reports that come twice (`after_report`).
  std::uint64_t report_index = 0;
  std::string config;           ///< The run's configuration as text (JSON).
  clock::time_point start_time; ///< When this driver life began.

  bool operator==(const run_context&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, run_context& x) {
  using std::chrono::microseconds;
  auto get = [&x] {
    auto since_epoch = x.start_time.time_since_epoch();
    return std::int64_t{
      std::chrono::duration_cast<microseconds>(since_epoch).count()};
  };
  auto set = [&x](std::int64_t us) {
    x.start_time = run_context::clock::time_point{microseconds{us}};
    return true;
  };
  return f.object(x).fields(
    f.field("name", x.name), f.field("path", x.path), f.field("id", x.id),
    f.field("attempt", x.attempt), f.field("world_size", x.world_size),
    f.field("report_index", x.report_index), f.field("config", x.config),
    f.field("start_time", get, set));
}

} // namespace troupe
