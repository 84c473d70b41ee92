#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Shows what others append to a file, on another host perhaps: what the file
/// has at the start is not shown. Looks twice a second, on a separate thread,
/// which alone waits for the file system and for the sink.
///
/// Of more than `max_behind` at once only the end is shown, and a line says so.
/// A sink that throws is not called again.
class log_follower {
public:
  using sink = std::function<void(std::string_view)>;

  /// In bytes.
  static constexpr std::size_t max_behind = std::size_t{1} << 20;

  /// *path* need not exist yet. `ec::spawn` if there is no thread.
  static expected<log_follower> start(std::string path, sink console);

  log_follower(log_follower&&) noexcept;
  log_follower& operator=(log_follower&&) = delete;

  /// Shows what was appended before, and ends.
  ~log_follower();

private:
  class worker;

  explicit log_follower(std::unique_ptr<worker> x);

  std::unique_ptr<worker> worker_;
};

} // namespace troupe::internal
