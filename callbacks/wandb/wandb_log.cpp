#include "troupe/callbacks/wandb/wandb_log.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "troupe/callbacks/encoding/binary.hpp"
#include "troupe/callbacks/encoding/record_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr std::size_t block_size = 32 * 1024;
constexpr std::size_t chunk_header = 7; // CRC 4, length 2, type 1
constexpr std::string_view file_header{":W&B\xe1\xbe\x00", 7};
// What one `log` of a sink can write; a larger tail was never confirmed.
constexpr std::size_t max_tail = std::size_t{1} << 30;

enum chunk_type : std::uint8_t { full = 1, first, middle, last };

std::uint32_t chunk_sum(std::uint8_t type, std::string_view data) noexcept {
  auto sum = ::crc32(0, &type, 1);
  return static_cast<std::uint32_t>(
    ::crc32_z(sum, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

struct chunk {
  std::uint8_t type = 0;
  std::string_view data;
};

std::uint32_t little_endian(std::string_view bytes) noexcept {
  std::uint32_t result = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    result |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return result;
}

// The chunk at the begin of *bytes*; nothing if it is torn or damaged.
std::optional<chunk> read_chunk(std::string_view bytes) noexcept {
  if (bytes.size() < chunk_header)
    return std::nullopt;
  auto length = little_endian(bytes.substr(4, 2));
  auto type = static_cast<std::uint8_t>(bytes[6]);
  if (type < full || type > last || bytes.size() - chunk_header < length)
    return std::nullopt;
  auto data = bytes.substr(chunk_header, length);
  if (little_endian(bytes.substr(0, 4)) != chunk_sum(type, data))
    return std::nullopt;
  return chunk{type, data};
}

// Gives the whole records of *bytes*, which begin at byte *from* of the file,
// to *see*; returns how many bytes they take.
std::size_t read_records(std::string_view bytes, std::uint64_t from,
                         const std::function<void(std::string_view)>& see) {
  std::size_t done = 0, at = 0;
  std::string record;
  auto within = false; // a record that has begun
  for (;;) {
    auto room = block_size - (from + at) % block_size;
    if (room < chunk_header)
      at += room; // zeros
    auto x = at < bytes.size() ? read_chunk(bytes.substr(at)) : std::nullopt;
    auto begins = x && (x->type == full || x->type == first);
    if (!x || begins == within)
      return done;
    record += x->data;
    at += chunk_header + x->data.size();
    within = x->type == first || x->type == middle;
    if (!within) {
      see(record);
      record.clear();
      done = at;
    }
  }
}

expected<std::string> read_tail(const unique_fd& file, const fs::path& path,
                                std::uint64_t from) {
  auto end = ::lseek(file.get(), 0, SEEK_END);
  if (end < 0)
    return tl::unexpected{storage_error("read", path, errno)};
  auto size = static_cast<std::uint64_t>(end);
  if (size < from || size - from > max_tail)
    return failure(ec::corrupt, path.string() + " has " + std::to_string(size)
                                  + " bytes, not the " + std::to_string(from)
                                  + " that were confirmed and little more");
  std::string result(size - from, '\0');
  std::size_t done = 0;
  while (done < result.size()) {
    auto n = ::pread(file.get(), result.data() + done, result.size() - done,
                     static_cast<off_t>(from + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return tl::unexpected{storage_error("read", path, n < 0 ? errno : EIO)};
    done += static_cast<std::size_t>(n);
  }
  return result;
}

} // namespace

expected<wandb_log> wandb_log::create(const fs::path& path,
                                      std::stop_token over) {
  if (auto ok = may_write(over, path); !ok)
    return tl::unexpected{ok.error()};
  auto file = open_file(path, O_WRONLY | O_CREAT | O_EXCL, "create");
  if (!file)
    return tl::unexpected{file.error()};
  wandb_log result{path, std::move(*file), 0, std::move(over)};
  result.pending_ = file_header;
  return result;
}

expected<wandb_log>
wandb_log::reopen(const fs::path& path, std::uint64_t from,
                  const std::function<void(std::string_view)>& see,
                  std::stop_token over) {
  auto file = open_file(path, O_RDWR, "open");
  if (!file)
    return tl::unexpected{file.error()};
  auto tail = read_tail(*file, path, from);
  if (!tail)
    return tl::unexpected{tail.error()};
  auto size = from + read_records(*tail, from, see);
  if (auto ok = may_write(over, path); !ok)
    return tl::unexpected{ok.error()};
  if (::ftruncate(file->get(), static_cast<off_t>(size)) != 0)
    return tl::unexpected{storage_error("cut the tail of", path, errno)};
  return wandb_log{path, std::move(*file), size, std::move(over)};
}

void wandb_log::append(std::string_view record) {
  auto begins = true;
  do {
    auto room = block_size - (size_ + pending_.size()) % block_size;
    if (room < chunk_header) {
      pending_.append(room, '\0');
      room = block_size;
    }
    auto part = record.substr(0, room - chunk_header);
    record.remove_prefix(part.size());
    auto ends = record.empty();
    append_chunk(begins ? (ends ? full : first) : (ends ? last : middle), part);
    begins = false;
  } while (!record.empty());
}

void wandb_log::append_chunk(std::uint8_t type, std::string_view data) {
  append_little_endian(pending_, chunk_sum(type, data));
  append_little_endian(pending_, static_cast<std::uint16_t>(data.size()));
  pending_ += static_cast<char>(type);
  pending_ += data;
}

expected<void> wandb_log::flush() {
  if (auto ok = may_write(over_, path_); !ok)
    return ok;
  std::string_view rest{pending_};
  while (!rest.empty()) {
    auto at = size_ + (pending_.size() - rest.size());
    auto n =
      ::pwrite(file_.get(), rest.data(), rest.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return tl::unexpected{storage_error("write", path_, errno)};
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  if (auto durable = sync_file(file_, path_); !durable)
    return durable;
  size_ += pending_.size();
  pending_.clear();
  return {};
}

} // namespace troupe
