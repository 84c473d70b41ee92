#include "troupe/runtime/process/segment_rank.hpp"

#include <algorithm>

#include "troupe/runtime/process/futex.hpp"

namespace troupe {

namespace {

constexpr std::uint32_t leave_bit = 1;
constexpr std::uint32_t one_step = 2;

bool at_least(std::uint32_t progress, std::uint32_t step) noexcept {
  auto ahead = (progress & ~leave_bit) - step * one_step;
  return static_cast<std::int32_t>(ahead) >= 0;
}

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

} // namespace

void segment_rank::advance() noexcept {
  progress.fetch_add(one_step);
  if (sleepers.load() != 0)
    futex_wake_all(progress);
}

bool segment_rank::reached(std::uint32_t step) const noexcept {
  return at_least(progress.load(std::memory_order_acquire), step);
}

segment_wait
segment_rank::wait_for(std::uint32_t step, int spins,
                       std::chrono::steady_clock::time_point deadline,
                       const std::atomic<bool>& cancelled) noexcept {
  for (;;) {
    auto now = progress.load(std::memory_order_acquire);
    if (at_least(now, step))
      return segment_wait::reached;
    if ((now & leave_bit) != 0 || cancelled.load())
      return segment_wait::left;
    if (spins-- > 0) {
      relax();
      continue;
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return segment_wait::timed_out;
    // The order (count up, look again in the kernel) and that of advance()
    // (count, look for sleepers) leave no gap to lose a wake-up in.
    sleepers.fetch_add(1);
    futex_wait(progress, now, deadline);
    sleepers.fetch_sub(1);
  }
}

void segment_rank::leave(std::string_view why) noexcept {
  std::uint32_t here = 0;
  if (departure.compare_exchange_strong(here, 1)) {
    departure_length = static_cast<std::uint32_t>(
      why.copy(departure_text.data(), departure_text.size()));
    departure.store(2, std::memory_order_release);
  }
  release_waiters();
}

std::string_view segment_rank::left() const noexcept {
  if (departure.load(std::memory_order_acquire) != 2)
    return {};
  return {departure_text.data(),
          std::min<std::size_t>(departure_length, departure_text.size())};
}

void segment_rank::release_waiters() noexcept {
  progress.fetch_or(leave_bit);
  futex_wake_all(progress);
}

} // namespace troupe
