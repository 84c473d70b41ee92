#include "troupe/runtime/storage/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// Fits into the L2 cache together with the hash's state, so that bytes are
// hashed while they are cached.
constexpr std::size_t block_size = 256 * 1024;

} // namespace

std::uint64_t checksum(std::string_view bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t x) {
  std::string result;
  append_hex(result, x);
  return result;
}

expected<file_digest> digest_file(const unique_fd& file, const fs::path& path) {
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  auto block = std::make_unique_for_overwrite<char[]>(block_size);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  file_digest result;
  for (;;) {
    auto count = uninterrupted([&] {
      return ::pread(file.get(), block.get(), block_size,
                     static_cast<off_t>(result.size));
    });
    if (count < 0)
      return tl::unexpected{storage_error("read", path, errno)};
    if (count == 0)
      break;
    XXH3_64bits_update(&state, block.get(), static_cast<std::size_t>(count));
    result.size += static_cast<std::uint64_t>(count);
  }
  result.checksum = XXH3_64bits_digest(&state);
  return result;
}

namespace {

constexpr std::string_view before = ",\"sum\":\"";
constexpr std::string_view after = "\"}\n";
static_assert(before.size() + 16 + after.size() == sum_size);

} // namespace

void append_sum(std::string& open_object) {
  auto sum = checksum_text(checksum(open_object));
  open_object += before;
  open_object += sum;
  open_object += after;
}

bool has_valid_sum(std::string_view text) noexcept {
  if (text.size() <= sum_size)
    return false;
  auto body = text.substr(0, text.size() - sum_size);
  auto tail = text.substr(body.size());
  return tail.starts_with(before) && tail.ends_with(after)
         && tail.substr(before.size(), 16) == checksum_text(checksum(body));
}

expected<void> verify_sum(std::string_view text, const std::string& what) {
  if (has_valid_sum(text))
    return {};
  return failure(ec::corrupt,
                 concat(what, " is damaged: its ", text.size(),
                        " bytes do not match the checksum at its end"));
}

} // namespace troupe::internal
