#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace troupe {

/// Where a rank waits without its worker group being told, for whoever wants to
/// know what it is in. Lies in the memory that ranks share, so that it can be
/// read while the rank stands still; zeroed memory is a rank that waits
/// nowhere.
///
/// Relaxed stores of a clock's value: costs nanoseconds.
struct rank_activity {
  using clock = std::chrono::steady_clock;

  /// When the loop began to wait for a batch of its data loader.
  std::atomic<clock::rep> in_data_loader;
  /// When the rank began to wait for keys of the rendezvous store.
  std::atomic<clock::rep> at_store;
  /// When the rank began to wait for an answer of the driver.
  std::atomic<clock::rep> asks_driver;
  /// When the rank began to wait for its GPU.
  std::atomic<clock::rep> at_device;
  /// When the rank entered the collective that it is in.
  std::atomic<clock::rep> in_collective;
  /// Collectives entered so far.
  std::atomic<std::uint64_t> collectives;
  /// Clock ticks that the rank has waited for others in collectives.
  std::atomic<clock::rep> waited;
  /// The last collective, by its number, that others did not come to in time.
  std::atomic<std::uint64_t> given_up;

  void enter_collective() noexcept {
    collectives.fetch_add(1, std::memory_order_relaxed);
    in_collective.store(now(), std::memory_order_relaxed);
  }

  void leave_collective() noexcept {
    in_collective.store(0, std::memory_order_relaxed);
  }

  void give_up_collective() noexcept {
    given_up.store(collectives.load(std::memory_order_relaxed),
                   std::memory_order_relaxed);
  }

  /// Whether that is the last one that the rank entered.
  bool gave_up_collective() const noexcept {
    auto last = collectives.load(std::memory_order_relaxed);
    return last > 0 && given_up.load(std::memory_order_relaxed) == last;
  }

  static clock::rep now() noexcept {
    return clock::now().time_since_epoch().count();
  }
};

/// Shows that the calling thread waits in *place* for as long as this object is
/// there.
class activity_scope {
public:
  explicit activity_scope(
    std::atomic<rank_activity::clock::rep>& place) noexcept
    : place_(place) {
    place_.store(rank_activity::now(), std::memory_order_relaxed);
  }

  activity_scope(const activity_scope&) = delete;

  activity_scope& operator=(const activity_scope&) = delete;

  ~activity_scope() { place_.store(0, std::memory_order_relaxed); }

private:
  std::atomic<rank_activity::clock::rep>& place_;
};

} // namespace troupe
