#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {

/// A train loop has begun to log; the names under which trackers show its run.
struct loop_start {
  std::string project;
  std::string experiment;
  std::string display_name;
};

/// How a train loop says that it ended.
struct loop_finish {
  run_status_kind status = run_status_kind::errored;
};

/// What a train loop logs besides its reports. Paths are relative to the run's
/// folder.
using loop_record =
  std::variant<loop_start, loop_finish, logged_metrics, logged_params,
               logged_text, logged_image, logged_histogram, logged_artifact>;

/// The event by which *x* travels to the driver and stands in the journal: its
/// kind begins with `tracker_`. Names of metrics and parameters become
/// `v/<name>`.
loop_event to_event(loop_record x);

/// What an event says that was made by `to_event`. A field that is missing or
/// of another type has its default. Empty if *kind* is another one.
std::optional<loop_record> to_loop_record(std::string_view kind,
                                          const metrics& fields);

} // namespace troupe::internal
