#include "troupe/runtime/values/run_status.hpp"

#include "troupe/runtime/enum_value.hpp"

namespace troupe {

using namespace internal;

std::string_view to_string(run_status_kind x) noexcept {
  switch (x) {
    case run_status_kind::running:
      return "running";
    case run_status_kind::finished:
      return "finished";
    case run_status_kind::errored:
      return "errored";
    case run_status_kind::aborted:
      return "aborted";
    case run_status_kind::preempted:
      return "preempted";
  }
  return "unknown";
}

std::optional<run_status_kind>
run_status_from_string(std::string_view name) noexcept {
  for (std::uint64_t i = 0; auto x = enum_value<run_status_kind>(i); ++i)
    if (to_string(*x) == name)
      return x;
  return std::nullopt;
}

std::string_view to_string(run_state x) noexcept {
  switch (x) {
    case run_state::initializing:
      return "initializing";
    case run_state::scheduling:
      return "scheduling";
    case run_state::running:
      return "running";
    case run_state::restarting:
      return "restarting";
    case run_state::rescheduling:
      return "rescheduling";
    case run_state::shutting_down:
      return "shutting_down";
    case run_state::finished:
      return "finished";
    case run_state::errored:
      return "errored";
    case run_state::aborted:
      return "aborted";
    case run_state::preempted:
      return "preempted";
  }
  return "unknown";
}

} // namespace troupe
