#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// *text* for use in a URL: all characters but letters, digits, `-._~` and
/// those of *kept* become `%XX`.
std::string percent_encoded(std::string_view text, std::string_view kept = {});

/// Longest wait that a server may request.
inline constexpr std::chrono::seconds longest_retry_after{600};

/// The value of a `Retry-After` header: seconds, or the time from *now* until
/// an HTTP date; from 0 to `longest_retry_after`. Empty if it is neither.
std::optional<std::chrono::seconds>
retry_after(const std::string& value,
            std::chrono::system_clock::time_point now);

} // namespace troupe
