#pragma once

#include <chrono>
#include <span>
#include <string>

#include "troupe/callbacks/comet/comet_message.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe {

/// Where Comet's messages go: to its service or into an archive.
class comet_backend {
public:
  virtual ~comet_backend() = default;

  /// Makes the experiment, or goes on with the one of *state*.
  virtual sink_result start(const std::string& state) = 0;

  /// Takes *messages* in order; `accepted` of a failure counts messages.
  virtual sink_result send(std::span<const comet_message> messages) = 0;

  /// How many messages can be sent at once. Fewer than there are means that
  /// the points of a metric may be thinned out.
  virtual std::size_t room() = 0;

  /// The experiment is over, until it is started again.
  virtual sink_result finish(std::chrono::system_clock::time_point time) = 0;

  virtual std::string state() const = 0;
};

} // namespace troupe
