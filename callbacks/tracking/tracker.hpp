#pragma once

#include <memory>
#include <mutex>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracker_options.hpp"
#include "troupe/callbacks/user_callback.hpp"

namespace troupe {

/// A callback that is told nothing: it reads along in the run's journal, on a
/// thread of its own. A tracker that is slow or down neither delays the run nor
/// loses a record.
///
/// Serves one run at a time; a run that begins before an earlier one has let go
/// of it gets nothing to it.
class tracker final : public user_callback {
public:
  explicit tracker(std::shared_ptr<sink> target, tracker_options options = {})
    : target_(std::move(target)), options_(options) {}

  const std::shared_ptr<sink>& target() const noexcept { return target_; }
  /// The sink, for one run: until the last copy of the pointer is gone. Empty
  /// as long as another run has it. Any thread.
  std::shared_ptr<sink> take() const {
    std::lock_guard guard{mutex_};
    if (!taken_.expired())
      return nullptr;
    auto owner = std::make_shared<std::shared_ptr<sink>>(target_);
    taken_ = owner;
    return {owner, target_.get()};
  }

  const tracker_options& options() const noexcept { return options_; }

private:
  std::shared_ptr<sink> target_;
  tracker_options options_;
  mutable std::mutex mutex_; // guards what follows
  mutable std::weak_ptr<std::shared_ptr<sink>> taken_;
};

} // namespace troupe
