#pragma once

#include <memory>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracker_options.hpp"
#include "troupe/callbacks/user_callback.hpp"

namespace troupe {

/// A callback that is told nothing: it reads along in the run's journal, on a
/// thread of its own. A tracker that is slow or down neither delays the run nor
/// loses a record.
///
/// Serves one run at a time.
class tracker final : public user_callback {
public:
  explicit tracker(std::shared_ptr<sink> target, tracker_options options = {})
    : target_(std::move(target)), options_(options) {}

  const std::shared_ptr<sink>& target() const noexcept { return target_; }
  const tracker_options& options() const noexcept { return options_; }

private:
  std::shared_ptr<sink> target_;
  tracker_options options_;
};

} // namespace troupe
