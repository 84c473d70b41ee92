#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal::tensorboard {

using time_point = std::chrono::system_clock::time_point;

// Each function appends one record of an event file: framed, with checksums.
// Times are those of the journal, so that a record has the same bytes when it
// is written again.

struct event_head {
  time_point time;
  std::int64_t step = 0;
};

/// The first record of every file.
void append_version(std::string& out, time_point time);

/// Makes readers discard earlier events of *head.step* or later.
void append_restart(std::string& out, event_head head);

/// TensorBoard stores floats: 24 bits of mantissa.
void append_scalar(std::string& out, event_head head, std::string_view tag,
                   double value);

void append_text(std::string& out, event_head head, std::string_view tag,
                 std::string_view text);

void append_histogram(std::string& out, event_head head,
                      const logged_histogram& x);

/// *png* is the image that *x* describes.
void append_image(std::string& out, event_head head, const logged_image& x,
                  std::string_view png);

// The three records of the page "HParams". A reader uses the first of each that
// it finds in a folder.

/// The params and metrics that the page shows.
void append_experiment(std::string& out, time_point time,
                       const std::string& name, const metrics& params,
                       const std::vector<std::string>& metric_names);

/// The run's *params* and start time.
void append_session_start(std::string& out, time_point time,
                          const std::string& run_name, const metrics& params);

/// How the run ended, and when.
void append_session_end(std::string& out, time_point time,
                        run_status_kind status);

} // namespace troupe::internal::tensorboard
