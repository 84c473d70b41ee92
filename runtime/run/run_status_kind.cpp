#include "troupe/runtime/run/run_status_kind.hpp"

namespace troupe {

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
  for (auto x : {run_status_kind::running, run_status_kind::finished,
                 run_status_kind::errored, run_status_kind::aborted,
                 run_status_kind::preempted})
    if (to_string(x) == name)
      return x;
  return std::nullopt;
}

} // namespace troupe
