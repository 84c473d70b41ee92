#pragma once

#include <string_view>

/// Kinds of the journal's events that trackers know.
namespace troupe::event_kind {

// What the run itself notes.
inline constexpr std::string_view attempt_begun = "attempt_begun";
inline constexpr std::string_view run_ended = "run_ended";

// What the handle in a train loop logs. Names and values of metrics and
// parameters are fields `v/<name>`; `step` is an integer.
inline constexpr std::string_view tracker_start = "tracker_start";
inline constexpr std::string_view tracker_log = "tracker_log";
inline constexpr std::string_view tracker_params = "tracker_params";
inline constexpr std::string_view tracker_text = "tracker_text";
inline constexpr std::string_view tracker_image = "tracker_image";
inline constexpr std::string_view tracker_histogram = "tracker_histogram";
inline constexpr std::string_view tracker_artifact = "tracker_artifact";
inline constexpr std::string_view tracker_finish = "tracker_finish";

/// Whether *kind* is one that a train loop may send.
inline constexpr bool is_of_loop(std::string_view kind) {
  return kind == tracker_start || kind == tracker_log || kind == tracker_params
         || kind == tracker_text || kind == tracker_image
         || kind == tracker_histogram || kind == tracker_artifact
         || kind == tracker_finish;
}

} // namespace troupe::event_kind
