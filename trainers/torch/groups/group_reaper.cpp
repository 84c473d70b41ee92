#include "troupe/trainers/torch/groups/group_reaper.hpp"

#include <condition_variable>
#include <mutex>

#include "troupe/runtime/process/quiet_thread.hpp"

namespace troupe {

namespace {

struct reaper_state {
  std::mutex mutex;
  std::condition_variable changed;
  int pending = 0;
};

/// Never destroyed: threads may outlive `main`.
reaper_state& state() {
  static auto* instance = new reaper_state;
  return *instance;
}

} // namespace

void group_reaper::dispose(c10::intrusive_ptr<c10d::Backend> group) {
  if (!group)
    return;
  auto& shared = state();
  {
    std::lock_guard guard{shared.mutex};
    ++shared.pending;
  }
  auto gone = [&shared] {
    std::lock_guard guard{shared.mutex};
    --shared.pending;
    shared.changed.notify_all();
  };
  // Not in the hands of the thread: one that does not start would destroy the
  // group here.
  auto* released = group.release();
  auto started = start_detached_thread([released, gone] {
    c10::intrusive_ptr<c10d::Backend>::reclaim(released).reset();
    gone();
  });
  if (!started)
    gone();
}

int group_reaper::pending() {
  std::lock_guard guard{state().mutex};
  return state().pending;
}

bool group_reaper::drain(std::chrono::milliseconds limit) {
  auto& shared = state();
  std::unique_lock guard{shared.mutex};
  return shared.changed.wait_for(guard, limit,
                                 [&shared] { return shared.pending == 0; });
}

} // namespace troupe
