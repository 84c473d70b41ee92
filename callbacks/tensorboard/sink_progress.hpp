#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "troupe/callbacks/tensorboard/event_files.hpp"
#include "troupe/callbacks/tensorboard/step_marks.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe::tensorboard {

/// How far a sink has come: all that another process needs to go on.
struct sink_progress {
  event_place place;
  bool has_attempt = false; ///< The file belongs to an attempt.
  metrics params;           ///< What the loop logged beside its config.
  std::map<std::string, std::uint64_t> texts; ///< Tag to checksum of its text.
  step_marks steps;
};

std::string to_json(const sink_progress& x);

/// What `to_json` wrote.
expected<sink_progress> progress_from_json(const std::string& text);

} // namespace troupe::tensorboard
