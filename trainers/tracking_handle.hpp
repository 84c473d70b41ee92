#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/values/run_status.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// Names under which trackers show the run. A tracker's own options take
/// precedence; empty ones are left to them.
struct tracking_options {
  std::string project;
  std::string experiment;
  std::string name; ///< Of the run; empty: `run_config::name`.
};

/// Pixels with 8 bits per channel, rows from the top: height x width x
/// channels.
struct image_view {
  std::span<const std::uint8_t> pixels;
  int width = 0;
  int height = 0;
  int channels = 3; ///< 1 gray, 2 gray with alpha, 3 RGB, 4 RGB with alpha.
};

/// Logs from inside a train loop to the trackers of the run, in addition to its
/// reports.
///
/// Works on rank 0; on the others every call does nothing, so that loops need
/// no guard. Records travel to the driver and are in the run's journal before
/// any later report of the rank is acknowledged. Belongs to the loop's thread.
/// Calls throw `train_error` when the run cannot take them.
class tracking_handle {
public:
  tracking_handle(train_context& context, const tracking_options& options);

  /// Finishes if that was not done: as aborted if the run was stopped, as
  /// preempted if it was preempted or another attempt continues it, as failed
  /// while an exception leaves the loop, else as finished.
  ~tracking_handle();

  tracking_handle(const tracking_handle&) = delete;
  tracking_handle& operator=(const tracking_handle&) = delete;

  /// Whether calls do anything: on rank 0, until `finish`.
  bool active() const noexcept { return context_ != nullptr; }

  /// Settings of the run besides the loop's config.
  void log_params(const metrics& values);

  /// Values at *step*; without it, one step after the last.
  void log(const metrics& values, std::int64_t step);
  void log(const metrics& values);

  void log_text(const std::string& name, const std::string& text,
                std::int64_t step);

  /// Keeps *image* as PNG under `media/` of the run's folder.
  void log_image(const std::string& name, const image_view& image,
                 std::int64_t step);

  /// How *values* are distributed, in *buckets* of equal width. NaN and
  /// infinities are left out.
  void log_histogram(const std::string& name, std::span<const double> values,
                     std::int64_t step, int buckets = 30);

  /// A file or folder that belongs to the run. Files outside the run's folder
  /// are copied to its `artifacts/<name>`, and so are those of checkpoints,
  /// which are renamed when they are reported and removed by retention. Durable
  /// when this returns. Throws for the run's folder itself.
  void log_artifact(const fs::path& path, const std::string& name = {});

  /// Records how the loop ended; later calls do nothing.
  void finish(run_status_kind status = run_status_kind::finished);

private:
  template <class Record>
  void send(Record x);
  /// Throws in a process that the loop forked, before a file is written.
  void check_process() const;

  train_context* context_ = nullptr; ///< Unset: the handle does nothing.
  std::int64_t next_step_ = 0;
  std::uint64_t images_ = 0;
  int exceptions_ = 0; ///< Under way when the handle was made.
  internal::owner_process process_;
};

/// Begins to log from the train loop of *context*. Names given before the run's
/// first report are those of the run in every tracker, restarts included.
inline tracking_handle start_tracking(train_context& context,
                                      const tracking_options& options = {}) {
  return {context, options};
}

} // namespace troupe
