#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace troupe {

/// Sleeps while *word* is *value*, at most until *deadline*. May wake for no
/// reason. The word may lie in memory that several processes share.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point deadline) noexcept;

/// Wakes all that sleep on *word*, in every process.
void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept;

} // namespace troupe
