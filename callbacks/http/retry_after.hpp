#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace troupe {

/// Longest wait that a server may ask for.
inline constexpr std::chrono::seconds longest_retry_after{600};

/// The value of a `Retry-After` header: seconds, or the time from *now* until
/// an HTTP date; never negative, at most `longest_retry_after`. Nothing if it
/// is neither.
std::optional<std::chrono::seconds>
retry_after(const std::string& value,
            std::chrono::system_clock::time_point now);

} // namespace troupe
