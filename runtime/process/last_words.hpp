#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// How much of a rank's last words is kept, in bytes.
inline constexpr std::size_t max_last_words = 4096;

/// From now on an exception that ends this process through std::terminate is
/// described in *fd* (a memory file) before the process ends as it would have.
void keep_last_words_in(int fd);

/// Leaves *text* as the cause of this process's end; the first call counts.
/// Does nothing outside a rank. Async-signal-safe.
void leave_last_words(std::string_view text) noexcept;

/// What a process left in *fd*.
std::string read_last_words(int fd);

} // namespace troupe
