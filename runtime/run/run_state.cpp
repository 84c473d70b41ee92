#include "troupe/runtime/run/run_state.hpp"

namespace troupe {

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
    case run_state::resizing:
      return "resizing";
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
