#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// Copies what a rank prints to its log file and to a sink, without ever
/// making the rank wait for the sink. Serves the processes of all attempts, one
/// after the other.
///
/// The sink runs on a separate thread. If it is more than `max_behind`
/// behind, the excess is only in the log, and a line says so. A sink that
/// throws is not called again; the log continues. A full disk does not stop
/// the sink.
class log_tee {
public:
  using sink = std::function<void(std::string_view)>;

  /// In bytes.
  static constexpr std::size_t max_behind = std::size_t{1} << 20;

  /// Appends to *path*, creating it; fails with `ec::storage`, or `ec::spawn`
  /// if there is no thread for it.
  static expected<log_tee> start(const std::string& path, sink console);

  log_tee(log_tee&&) noexcept;
  log_tee& operator=(log_tee&&) = delete;

  /// Copies what is in the pipe, waits for the sink to take it, and ends, even
  /// if a process still holds the writing end: destroy it after the rank's end.
  ~log_tee();

  /// A copy of the writing end, for `spawn_request::output`.
  expected<unique_fd> writer() const;

private:
  class worker;

  explicit log_tee(std::unique_ptr<worker> x);

  std::unique_ptr<worker> worker_;
};

} // namespace troupe::internal
