#include "troupe/runtime/run/run_event.hpp"

#include <array>

namespace troupe {

bool tells_of_group(const run_event& x) noexcept {
  using namespace run_events;
  return std::holds_alternative<group_started>(x)
         || std::holds_alternative<group_start_failed>(x)
         || std::holds_alternative<ranks_finished>(x)
         || std::holds_alternative<ranks_failed>(x)
         || std::holds_alternative<group_stopped>(x)
         || std::holds_alternative<group_stop_failed>(x);
}

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
