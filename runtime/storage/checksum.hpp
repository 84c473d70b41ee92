#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// XXH3-64 of *bytes*.
std::uint64_t checksum(std::string_view bytes) noexcept;

/// 16 hexadecimal digits; what JSON files hold, since its numbers are doubles
/// to many readers.
std::string checksum_text(std::uint64_t x);

/// Size and checksum of a file's bytes.
struct file_digest {
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;
};

/// Reads *file* from its begin to its end; *path* is for the error's sentence.
expected<file_digest> digest_file(const unique_fd& file, const fs::path& path);

/// Closes a JSON object that was begun as *open_object* ("{…", at least one
/// field, no "}") with its checksum as last field and a line end:
/// `,"sum":"<16 hex digits>"}\n`. The sum is that of all bytes before it, so a
/// flipped byte anywhere is noticed.
void append_sum(std::string& open_object);

/// Length of what `append_sum` adds.
inline constexpr std::size_t sum_size = 8 + 16 + 3;

/// Whether *text* ends with the right checksum.
bool has_valid_sum(std::string_view text) noexcept;

/// `ec::corrupt` naming *what* if the checksum is missing or wrong.
expected<void> verify_sum(std::string_view text, const std::string& what);

} // namespace troupe::internal
