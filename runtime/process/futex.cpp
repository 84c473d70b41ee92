#include "troupe/runtime/process/futex.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4
              && std::atomic<std::uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point deadline) noexcept {
  using namespace std::chrono;
  // FUTEX_WAIT_BITSET takes an absolute time on the clock of steady_clock.
  auto since = deadline.time_since_epoch();
  auto whole = duration_cast<seconds>(since);
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(whole.count());
  limit.tv_nsec = static_cast<long>(nanoseconds{since - whole}.count());
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_BITSET,
          value, &limit, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE,
          INT_MAX, nullptr, nullptr, 0);
}

} // namespace troupe
