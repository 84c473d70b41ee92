#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe {

/// The wait before the next attempt. It doubles, with jitter, so that a service
/// that recovers is not asked by many runs at once.
class backoff {
public:
  using milliseconds = std::chrono::milliseconds;

  struct limits {
    milliseconds first{1000};
    milliseconds longest{60'000};
    /// Limit for what a service asks for (`Retry-After`).
    milliseconds longest_asked{600'000};
  };

  explicit backoff(limits x, std::uint64_t seed = std::random_device{}())
    : limits_(x), random_(seed) {}

  /// Between half the bound and the bound, which doubles with each call from
  /// `first` to `longest`; at least *asked*, the wait that a service asks for.
  milliseconds next(std::optional<milliseconds> asked = std::nullopt);

  /// After a success: the next wait is short again.
  void reset() noexcept { failures_ = 0; }

private:
  limits limits_;
  std::mt19937_64 random_;
  int failures_ = 0;
};

/// How a run's records are sent to a tracker.
struct tracker_options {
  /// Records of this period are sent together. The run does not wait for it.
  std::chrono::milliseconds interval{500};
  /// Most records per batch; the tracker may set a lower limit.
  std::size_t max_batch = 1000;
  /// How long the end of the run waits for the tracker. Unsent records stay in
  /// the run's folder, for `troupe sync` or the next driver.
  std::chrono::milliseconds finish_timeout{60'000};
  /// The same for a tracker that fails all that time. Unset:
  /// `finish_timeout`.
  std::optional<std::chrono::milliseconds> failing_timeout = std::nullopt;
  /// Between attempts while the tracker fails.
  backoff::limits retry;
};

/// For the files that every run has. Users expect them to be complete when
/// `fit()` returns: long files are waited for, a disk that fails is not.
inline constexpr tracker_options own_files{
  .finish_timeout = std::chrono::minutes{10},
  .failing_timeout = std::chrono::milliseconds{2000}};

/// Sends the records of a run to a sink, for `run_config::trackers`. It follows
/// the run's journal on its own thread, so that a service that is slow or down
/// neither delays the run nor loses a record.
///
/// Serves one run at a time; a run that begins while an earlier one still has
/// it sends nothing.
class tracker {
public:
  explicit tracker(std::shared_ptr<sink> target, tracker_options options = {})
    : target_(std::move(target)), options_(options) {}

  const std::shared_ptr<sink>& target() const noexcept { return target_; }

  /// The sink, for one run: until the last copy of the pointer is destroyed.
  /// Empty while another run has it. Any thread may call.
  std::shared_ptr<sink> take() const {
    std::lock_guard guard{mutex_};
    if (!taken_.expired())
      return nullptr;
    auto owner = std::make_shared<std::shared_ptr<sink>>(target_);
    taken_ = owner;
    return {owner, target_.get()};
  }

  const tracker_options& options() const noexcept { return options_; }

  /// An equal one for another run, by `sink::another`; null: there is none.
  std::shared_ptr<const tracker> another() const {
    auto sink = target_->another();
    return sink ? std::make_shared<const tracker>(std::move(sink), options_)
                : nullptr;
  }

private:
  std::shared_ptr<sink> target_;
  tracker_options options_;
  mutable std::mutex mutex_; // guards what follows
  mutable std::weak_ptr<std::shared_ptr<sink>> taken_;
};

namespace internal {

/// The tracker of a new `Sink` with *options*.
template <class Sink>
std::shared_ptr<tracker> make_tracker(typename Sink::options_type options,
                                      tracker_options tracking) {
  return std::make_shared<tracker>(std::make_shared<Sink>(std::move(options)),
                                   tracking);
}

} // namespace internal

} // namespace troupe
