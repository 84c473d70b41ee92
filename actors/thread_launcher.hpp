#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "troupe/actors/rank_launcher.hpp"

namespace troupe::internal {

/// The thread that waits in `fit()`, lent to a run for the loop of its only
/// rank.
class lent_thread {
public:
  /// Runs *job*, which must not throw, on the thread in `serve`, after earlier
  /// ones; false once the thread was taken back.
  bool run(std::function<void()> job);

  /// Runs jobs on the calling thread until the thread is taken back, and
  /// finishes any that has begun.
  void serve();

  /// The run no longer needs the thread. Any thread may call.
  void take_back();

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool taken_back_ = false;
};

/// Starts ranks as threads of this process. A thread that does not leave its
/// loop cannot be ended: it is left behind.
class thread_launcher : public rank_launcher {
public:
  /// The function of a rank's thread; an exception ends the rank. *segment*
  /// stays open while it runs, even after its attempt.
  using body_type =
    std::function<void(std::uint64_t attempt, int rank, int segment)>;

  /// Ranks run on *lent*, one after another, or on separate threads.
  explicit thread_launcher(body_type body,
                           std::shared_ptr<lent_thread> lent = nullptr);

  void launch(std::uint64_t attempt, int rank, int segment,
              const listener& tell) override;
  void kill(int rank) override;

  /// Separate threads of ranks that are still in their loops.
  int running() const noexcept;

  /// Waits until no thread is in its loop any more.
  void join();

  /// No rank is launched any more: destroys the function on this thread, unless
  /// a thread is still in its loop or was lent. It may have the user's
  /// closures, whose destructors may wait.
  void forget();

private:
  struct shared;
  std::shared_ptr<shared> shared_;
  std::shared_ptr<lent_thread> lent_;
};

} // namespace troupe::internal
