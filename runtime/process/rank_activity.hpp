#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace troupe::internal {

/// What made the first collective of a rank fail.
enum class collective_failure : std::uint32_t {
  none,
  own,    ///< Its arguments, or a limit.
  others, ///< Another rank left, or the attempt was aborted.
};

/// How far a loop is in a pass over its data loader. Zeroed memory: it makes
/// none.
struct loader_pass {
  using clock = std::chrono::steady_clock;

  std::atomic<std::uint64_t> epoch;
  /// Batches of the pass, from its first one on; fewer than in the epoch if it
  /// began in its middle.
  std::atomic<std::uint64_t> batches;
  /// Batches that the loop has taken; it still works on the last one.
  std::atomic<std::uint64_t> taken;
  /// When the loop took the first one.
  std::atomic<clock::rep> begun;

  /// The loop takes batch *number*, counted from 1, of a pass.
  void take(std::uint64_t in_epoch, std::uint64_t number, std::uint64_t of,
            clock::rep since) noexcept {
    epoch.store(in_epoch, std::memory_order_relaxed);
    taken.store(number, std::memory_order_relaxed);
    begun.store(since, std::memory_order_relaxed);
    batches.store(of, std::memory_order_relaxed);
  }

  void end() noexcept { batches.store(0, std::memory_order_relaxed); }
};

/// Where a rank waits without sending its host's agent a message. It is in the
/// ranks' shared memory, so that it can be read while the rank is stopped;
/// zeroed memory means that the rank does not wait.
///
/// Written by relaxed stores of a clock's value, which cost nanoseconds.
struct rank_activity {
  using clock = std::chrono::steady_clock;

  /// When the loop began to wait for a batch of its data loader.
  std::atomic<clock::rep> in_data_loader;
  /// The pass that the loop makes over its data loader.
  loader_pass pass;
  /// When the rank began to wait for keys of the rendezvous store.
  std::atomic<clock::rep> at_store;
  /// When the rank began to wait at the start of its group: for all others, or
  /// for connections to other hosts. Both have limits of their own.
  std::atomic<clock::rep> at_start;
  /// Not 0: the rank has come there.
  std::atomic<std::uint32_t> came_to_start;
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
  /// Number of the last collective in which others were missing at its timeout.
  std::atomic<std::uint64_t> given_up;
  /// Collectives that the loop's thread has called, under way or not.
  std::atomic<std::uint64_t> called;
  /// The last one, by that count, that the loop's thread waits for and that
  /// completes only after all ranks have called it. 0: none.
  std::atomic<std::uint64_t> awaited;
  /// Index after that of the last report that did not wait. Such messages may
  /// still be under way.
  std::atomic<std::uint64_t> reported;
  /// Not 0: another thread has called a collective as well, or a call failed at
  /// once, so `called` is not meaningful.
  std::atomic<std::uint32_t> uncounted;
  /// How collectives of this rank have failed, if any has.
  std::atomic<collective_failure> failed;
  /// Not 0: the rank has left the group by itself. It may report the reason
  /// much later, after its hook.
  std::atomic<std::uint32_t> left_group;

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

  /// The first failure stays.
  void fail_collective(collective_failure how) noexcept {
    auto none = collective_failure::none;
    failed.compare_exchange_strong(none, how, std::memory_order_relaxed);
  }

  static clock::rep now() noexcept {
    return clock::now().time_since_epoch().count();
  }
};

/// Records that the calling thread waits in *place* while this object
/// exists.
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

} // namespace troupe::internal
