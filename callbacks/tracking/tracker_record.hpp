#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/run/history_row.hpp"
#include "troupe/runtime/run/run_status_kind.hpp"

namespace troupe {

/// What a train loop logged beside its reports.
struct logged_metrics {
  std::int64_t step = 0;
  metrics values;
};

/// Settings of the run that a train loop logged beside its config.
struct logged_params {
  metrics values;
};

struct logged_text {
  std::int64_t step = 0;
  std::string name;
  std::string text;
};

/// An image that is kept as PNG in the run's folder.
struct logged_image {
  std::int64_t step = 0;
  std::string name;
  fs::path file; ///< Absolute.
  int width = 0; ///< Pixels.
  int height = 0;
  int channels = 0; ///< 1 grey, 2 grey with alpha, 3 RGB, 4 RGB with alpha.
};

/// How often values fell into each bucket.
struct logged_histogram {
  std::int64_t step = 0;
  std::string name;
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits; ///< Upper limit of each bucket, rising.
  std::vector<double> counts; ///< As many as `limits`.
};

/// A file, or a folder with all below it, that belongs to the run.
struct logged_artifact {
  fs::path path;    ///< Absolute.
  std::string name; ///< Relative path under which the tracker shows it.
};

/// A group of ranks begins. Reports from *first_report* on follow; ones of that
/// index or above that came before it were lost to a rollback.
struct attempt_record {
  std::uint64_t first_report = 0;
};

/// The run is over, until another driver resumes it.
struct run_end_record {
  run_status_kind status = run_status_kind::finished;
};

/// One entry of a run's journal as trackers see it.
struct tracker_record {
  using content_type =
    std::variant<history_row, logged_metrics, logged_params, logged_text,
                 logged_image, logged_histogram, logged_artifact,
                 attempt_record, run_end_record>;

  std::uint64_t attempt = 0;
  /// When it was reported. Fixed then: a record that is sent again has the same
  /// time. Never goes back from record to record.
  std::chrono::system_clock::time_point time;
  /// Byte of the journal after the record: unique, and rises from record to
  /// record.
  std::uint64_t end = 0;
  content_type content;
};

/// Milliseconds since 1970, UTC.
inline std::int64_t unix_ms(std::chrono::system_clock::time_point x) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
           x.time_since_epoch())
    .count();
}

} // namespace troupe
