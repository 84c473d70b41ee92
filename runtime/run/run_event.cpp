#include "troupe/runtime/run/run_event.hpp"

#include <array>

namespace troupe {

std::string_view name_of(const run_event& x) noexcept {
  static constexpr std::array<std::string_view, 13> names{
    "size_decided",   "size_undecided", "group_started",   "group_start_failed",
    "ranks_finished", "ranks_failed",   "group_stopped",   "group_stop_failed",
    "run_failed",     "stop_requested", "abort_requested", "preempt_requested",
    "grace_over"};
  static_assert(names.size() == std::variant_size_v<run_event>);
  return names[x.index()];
}

} // namespace troupe
