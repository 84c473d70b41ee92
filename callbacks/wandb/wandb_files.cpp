#include "troupe/callbacks/wandb/wandb_files.hpp"

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "troupe/callbacks/encoding/binary.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view prefix = "offline-run-";
constexpr std::size_t time_size = 15; // 20260131_235959

constexpr const char* time_format = "%Y%m%d_%H%M%S";

// The time in *name*; `nullopt` if it is not a folder of run *id*.
std::optional<std::chrono::sys_seconds> time_of(const std::string& name,
                                                const std::string& id) {
  if (!name.starts_with(prefix)
      || name.size() != prefix.size() + time_size + 1 + id.size()
      || !name.ends_with("-" + id))
    return std::nullopt;
  return parse_utc(name.substr(prefix.size(), time_size), time_format);
}

// A convenience for readers and for W&B's tools, so a failure is ignored: some
// file systems have no links.
void name_latest(const fs::path& root, const std::string& name) {
  boost::system::error_code ignored;
  auto link = root / "latest-run";
  auto fresh = root / ("latest-run.new-" + name);
  fs::create_symlink(name, fresh, ignored);
  if (!ignored)
    fs::rename(fresh, link, ignored);
  if (ignored)
    fs::remove(fresh, ignored);
}

constexpr std::size_t block_size = 32 * 1024;
constexpr std::size_t chunk_header = 7; // CRC 4, length 2, type 1
constexpr std::string_view file_header{":W&B\xe1\xbe\x00", 7};
// One call of a sink's `log` writes less; a longer tail is from someone else.
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

// The first chunk of *bytes*; `nullopt` if it is torn or damaged.
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

// Calls *see* for the whole records of *bytes*, which start at byte *from* of
// the file. Returns how many bytes they occupy.
std::size_t read_records(std::string_view bytes, std::uint64_t from,
                         const std::function<void(std::string_view)>& see) {
  std::size_t done = 0, at = 0;
  std::string record;
  auto within = false; // inside a record
  for (;;) {
    auto room = block_size - (from + at) % block_size;
    if (room < chunk_header)
      at += room; // padding
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

expected<std::string> read_tail(const record_file& log, std::uint64_t from) {
  auto& path = log.path();
  if (log.size() < from || log.size() - from > max_tail)
    return failure(ec::corrupt,
                   concat(path.string(), " has ", log.size(), " bytes, but ",
                          from, " of them were confirmed"));
  TROUPE_TRY(auto file, open_file(path, O_RDONLY, "read"));
  auto size = log.size() - from;
  TROUPE_TRY(auto tail, read_range(file, path, from, size));
  if (tail.size() < size) // cut by someone else
    return tl::unexpected{storage_error("read", path, EIO)};
  return tail;
}

} // namespace

bool wandb_fragment::is_synced() const {
  // If that cannot be determined, upload it again: W&B accepts duplicates.
  auto found = look_up(log().string() + ".synced");
  return found && found->exists();
}

expected<std::vector<wandb_fragment>> wandb_fragments(const fs::path& root,
                                                      const std::string& id) {
  std::vector<wandb_fragment> result;
  boost::system::error_code code;
  for (fs::directory_iterator i{root, code}, end; !code && i != end;
       i.increment(code)) {
    auto path = i->path();
    if (auto time = time_of(path.filename().string(), id))
      result.push_back({path, id, *time});
  }
  if (code && code.value() != ENOENT)
    return tl::unexpected{storage_error("list", root, code.value())};
  std::ranges::sort(result, {}, &wandb_fragment::time);
  return result;
}

std::vector<wandb_fragment> unsynced(std::vector<wandb_fragment> all) {
  std::erase_if(all, [](auto& x) { return x.is_synced(); });
  return all;
}

expected<wandb_fragment>
make_wandb_fragment(const fs::path& root, const std::string& id,
                    std::chrono::system_clock::time_point now) {
  using namespace std::chrono_literals;
  auto time = std::chrono::floor<std::chrono::seconds>(now);
  TROUPE_TRY(auto others, wandb_fragments(root, id));
  if (!others.empty())
    time = std::max(time, others.back().time + 1s);
  auto name = std::string{prefix} + utc_text(time, time_format) + "-" + id;
  wandb_fragment result{root / name, id, time};
  for (auto& folder : {result.files(), result.path / "logs"})
    TROUPE_TRY_VOID(make_folders(folder));
  name_latest(root, name);
  return result;
}

expected<wandb_log> wandb_log::create(const fs::path& path,
                                      std::stop_token over) {
  TROUPE_TRY(auto file, record_file::create(path, over));
  wandb_log result{std::move(file)};
  result.pending_ = file_header;
  return result;
}

expected<wandb_log>
wandb_log::reopen(const fs::path& path, std::uint64_t from,
                  const std::function<void(std::string_view)>& see,
                  std::stop_token over) {
  TROUPE_TRY(auto file, record_file::reopen(path, over));
  TROUPE_TRY(auto tail, read_tail(file, from));
  TROUPE_TRY_VOID(file.cut(from + read_records(tail, from, see)));
  return wandb_log{std::move(file)};
}

void wandb_log::append(std::string_view record) {
  auto begins = true;
  do {
    auto room = block_size - (size() + pending_.size()) % block_size;
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
  return file_.append(pending_)
    .and_then([this] { return file_.commit(); })
    .map([this] { pending_.clear(); });
}

} // namespace troupe::internal
