#pragma once

#include <cstdint>
#include <string>

#include "troupe/callbacks/tensorboard/sink_progress.hpp"
#include "troupe/callbacks/tensorboard/tensorboard_options.hpp"
#include "troupe/callbacks/tracking/sink_result.hpp"
#include "troupe/callbacks/tracking/tracker_record.hpp"

namespace troupe::tensorboard {

/// Appends the events that show *record*; none for one that has no place in
/// event files. *progress* learns its texts and steps. An image whose file is
/// gone is rejected.
sink_result append_record(std::string& out, const tracker_record& record,
                          const tensorboard_options& options,
                          sink_progress& progress);

/// The step at which TensorBoard shows *record*; -1: it has none.
std::int64_t step_of(const tracker_record& record);

} // namespace troupe::tensorboard
