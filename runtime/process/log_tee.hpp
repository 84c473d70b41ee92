#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// Copies what a rank prints to its log file and to a sink, on a thread of its
/// own, until every writer has closed the pipe.
///
/// A sink that throws is not called again; the log goes on. A full disk does
/// not stop the sink.
class log_tee {
public:
  using sink = std::function<void(std::string_view)>;

  /// Appends to *path*, creating it; fails with `ec::storage`.
  static expected<log_tee> start(const std::string& path, sink console);

  log_tee(log_tee&&) noexcept = default;
  log_tee& operator=(log_tee&&) = delete;

  /// Waits until all writers are gone and everything is copied.
  ~log_tee();

  /// The writing end, for `spawn_request::output`. Once: afterwards only the
  /// rank holds the pipe open.
  unique_fd take_writer() noexcept { return std::move(writer_); }

private:
  log_tee(unique_fd writer, std::thread thread) noexcept
    : writer_{std::move(writer)}, thread_{std::move(thread)} {}

  unique_fd writer_;
  std::thread thread_;
};

} // namespace troupe
