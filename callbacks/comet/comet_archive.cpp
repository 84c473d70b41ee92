#include "troupe/callbacks/comet/comet_archive.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>

#include "troupe/callbacks/encoding/binary.hpp"
#include "troupe/callbacks/encoding/record_file.hpp"
#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"

namespace troupe {

namespace {

constexpr std::uint16_t version = 20; // 2.0: deflate
constexpr std::uint16_t utf8_names = 1 << 11;
constexpr std::uint16_t deflated = 8;
constexpr std::uint32_t header_mark = 0x04034b50;
constexpr std::size_t header_size = 30;         // without the name
constexpr std::uint16_t first_day = 1 << 5 | 1; // 1980-01-01, zip's first

std::string deflate_raw(const std::string& bytes) {
  z_stream stream{};
  ::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8,
                 Z_DEFAULT_STRATEGY);
  std::string result(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  ::deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  ::deflateEnd(&stream);
  return result;
}

// `nullopt` unless the result has *size* bytes; does not allocate more than the
// format can pack into so many bytes.
std::optional<std::string> inflate_raw(std::string_view packed,
                                       std::size_t size) {
  constexpr std::size_t most = 1032; // deflate's best ratio
  if (size / most > packed.size())
    return std::nullopt;
  z_stream stream{};
  ::inflateInit2(&stream, -15);
  std::string result(size, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(size);
  auto end = ::inflate(&stream, Z_FINISH);
  auto total = stream.total_out;
  ::inflateEnd(&stream);
  if (end != Z_STREAM_END || total != size)
    return std::nullopt;
  return result;
}

std::uint32_t sum_of(const std::string& bytes) {
  return static_cast<std::uint32_t>(
    ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t u32_at(std::string_view bytes, std::size_t at) {
  std::uint32_t result = 0;
  for (int i = 3; i >= 0; --i)
    result = result << 8 | static_cast<unsigned char>(bytes[at + i]);
  return result;
}

// The fields that an entry's own header and the directory's have in common.
void append_facts(std::string& out, const zip_entry& x,
                  const std::string& packed) {
  append_little_endian(out, version);
  append_little_endian(out, utf8_names);
  append_little_endian(out, deflated);
  append_little_endian(out, std::uint16_t{0}); // time
  append_little_endian(out, first_day);
  append_little_endian(out, sum_of(x.bytes));
  append_little_endian(out, static_cast<std::uint32_t>(packed.size()));
  append_little_endian(out, static_cast<std::uint32_t>(x.bytes.size()));
  append_little_endian(out, static_cast<std::uint16_t>(x.name.size()));
  append_little_endian(out, std::uint16_t{0}); // extra
}

using message_kind = comet_message::kind;

constexpr std::size_t max_messages = std::size_t{1} << 30;

std::string in_quotes(std::string_view text) {
  std::string result;
  append_json(result, text);
  return result;
}

sink_result fails(const error& reason) {
  return sink_fails(reason.code == ec::corrupt ? sink_failure::kind::permanent
                                               : sink_failure::kind::transient,
                    reason);
}

error lost(const fs::path& path, std::uint64_t size, std::uint64_t wanted) {
  return {ec::corrupt, path.string() + " has " + std::to_string(size) + " of "
                         + std::to_string(wanted)
                         + " bytes that were written: remove the run's file "
                           "sinks/comet.offset to write the archive again"};
}

// Makes *bytes* follow the first *at* bytes of the file, durably. Returns
// `ec::corrupt` if the file is shorter than *at*.
expected<void> write_tail(const fs::path& path, std::uint64_t at,
                          std::string_view bytes, const std::stop_token& over) {
  auto found = look_up(path);
  if (!found)
    return tl::unexpected{found.error()};
  if (found->size < at)
    return tl::unexpected{lost(path, found->size, at)};
  auto file = record_file::open(path, over);
  if (!file)
    return tl::unexpected{file.error()};
  return file->cut(at)
    .and_then([&] { return file->append(bytes); })
    .and_then([&] { return file->commit(); });
}

} // namespace

expected<std::string> make_zip(const std::vector<zip_entry>& entries) {
  constexpr std::size_t limit = std::numeric_limits<std::uint32_t>::max() / 2;
  std::string out, directory;
  for (auto& x : entries) {
    if (x.bytes.size() > limit || out.size() > limit)
      return failure(ec::unsupported,
                     "the zip archive is too large for entry " + x.name + " of "
                       + std::to_string(x.bytes.size()) + " bytes");
    auto packed = deflate_raw(x.bytes);
    auto begin = out.size();
    append_little_endian(out, header_mark);
    append_facts(out, x, packed);
    out += x.name;
    out += packed;
    append_little_endian(directory, std::uint32_t{0x02014b50});
    append_little_endian(directory, version); // made by
    append_facts(directory, x, packed);
    directory.append(6, '\0'); // comment, disk, attributes
    append_little_endian(directory, std::uint32_t{0100644u << 16});
    append_little_endian(directory, static_cast<std::uint32_t>(begin));
    directory += x.name;
  }
  auto count = static_cast<std::uint16_t>(entries.size());
  auto at = static_cast<std::uint32_t>(out.size());
  out += directory;
  append_little_endian(out, std::uint32_t{0x06054b50});
  append_little_endian(out, std::uint32_t{0}); // disks
  append_little_endian(out, count);
  append_little_endian(out, count);
  append_little_endian(out, static_cast<std::uint32_t>(directory.size()));
  append_little_endian(out, at);
  append_little_endian(out, std::uint16_t{0}); // comment
  return out;
}

expected<std::string> zip_member(std::string_view archive,
                                 std::string_view name) {
  while (archive.size() > header_size && u32_at(archive, 0) == header_mark) {
    auto packed_size = u32_at(archive, 18);
    auto size = u32_at(archive, 22);
    auto name_size = u32_at(archive, 26) & 0xffff; // no extra
    if (archive.size() - header_size < std::uint64_t{name_size} + packed_size)
      break;
    auto entry = archive.substr(header_size, name_size);
    auto packed = archive.substr(header_size + name_size, packed_size);
    if (entry == name) {
      auto bytes = inflate_raw(packed, size);
      if (!bytes || sum_of(*bytes) != u32_at(archive, 14))
        break;
      return *bytes;
    }
    archive.remove_prefix(header_size + name_size + packed_size);
  }
  return failure(ec::corrupt,
                 "the zip archive has no whole entry " + std::string{name});
}

comet_archive::comet_archive(comet_settings settings,
                             std::vector<std::string> tags,
                             const tracked_run& run)
  : settings_(std::move(settings)), tags_(std::move(tags)),
    start_ms_(unix_ms(run.start_time)), over_(run.cancelled) {}

fs::path comet_archive::path() const {
  auto name = settings_.experiment_key;
  if (number_ > 0)
    name += "-" + std::to_string(number_);
  return settings_.offline_directory / (name + ".zip");
}

fs::path comet_archive::messages_path() const {
  return path().replace_extension(".messages");
}

std::string comet_archive::state() const {
  return json::document{{"archive", number_},
                        {"size", size_},
                        {"count", count_},
                        {"packed", packed_}}
    .dump();
}

sink_result comet_archive::start(const std::string& state) {
  if (!state.empty()) {
    auto read = json::read<bool>(
      state, "the state of tracker comet", [&](const json::document& in) {
        number_ = json::to_unsigned(in.at("archive"));
        size_ = json::to_unsigned(in.at("size"));
        count_ = json::to_unsigned(in.at("count"));
        packed_ = in.at("packed").get<bool>();
        return true;
      });
    if (!read)
      return sink_fails(sink_failure::kind::permanent, read.error());
  }
  if (auto made = make_folders(settings_.offline_directory, 0755); !made)
    return fails(made.error());
  if (packed_)
    return {};
  if (auto ok = restore_messages(); !ok)
    return fails(ok.error());
  return {};
}

// Cuts the file to the confirmed messages. If the driver died between packing
// them and saving its state, they are only in the archive.
expected<void> comet_archive::restore_messages() {
  auto found = look_up(messages_path());
  if (!found)
    return tl::unexpected{found.error()};
  if (found->size >= size_)
    return write_tail(messages_path(), size_, {}, over_);
  auto archive = look_up(path());
  if (!archive)
    return tl::unexpected{archive.error()};
  if (!archive->exists())
    return tl::unexpected{lost(messages_path(), found->size, size_)};
  auto zip = read_file(path(), max_messages);
  if (!zip)
    return tl::unexpected{zip.error()};
  auto messages = zip_member(*zip, "messages.json");
  if (!messages || messages->size() < size_)
    return tl::unexpected{lost(messages_path(), found->size, size_)};
  return write_tail(messages_path(), 0, messages->substr(0, size_), over_);
}

std::size_t comet_archive::room() {
  return std::numeric_limits<std::size_t>::max();
}

sink_result comet_archive::send(std::span<const comet_message> messages) {
  if (packed_) {
    ++number_;
    size_ = count_ = 0;
    packed_ = false;
  }
  std::string text;
  auto count = count_;
  for (auto& x : messages)
    text += line_of(x, ++count);
  if (auto ok = write_tail(messages_path(), size_, text, over_); !ok)
    return fails(ok.error());
  size_ += text.size();
  count_ = count;
  return {};
}

std::string comet_archive::line_of(const comet_message& x,
                                   std::uint64_t id) const {
  auto name = in_quotes(x.name), value = comet_json(x.value);
  auto time = std::to_string(x.time_ms);
  auto step = x.step ? std::to_string(*x.step) : std::string{"null"};
  std::string type, payload;
  switch (x.what) {
    case message_kind::metric:
      type = "metric_msg";
      payload = R"("local_timestamp":)" + time + R"(,"metric":{"metricName":)"
                + name + R"(,"metricValue":)" + value + R"(,"step":)" + step
                + R"(,"epoch":null})";
      break;
    case message_kind::parameter:
      type = "parameter_msg";
      payload = R"("local_timestamp":)" + time + R"(,"param":{"paramName":)"
                + name + R"(,"paramValue":)" + value
                + R"(,"source":"manual","step":)" + step + "}";
      break;
    case message_kind::asset: // An archive holds values only.
      value = x.file ? in_quotes(x.file->string()) : value;
      [[fallthrough]];
    case message_kind::other:
      type = "log_other";
      payload = R"("key":)" + name + R"(,"value":)" + value;
      break;
  }
  return R"({"payload":{)" + payload + R"(,"message_id":)" + std::to_string(id)
         + R"(},"type":")" + type + "\"}\n";
}

std::string comet_archive::experiment_json(std::int64_t end_ms) const {
  json::document out{{"offline_id", settings_.experiment_key},
                     {"project_name", settings_.project},
                     {"start_time", start_ms_},
                     {"stop_time", end_ms},
                     {"tags", tags_},
                     {"resume_strategy", number_ > 0 || settings_.is_known
                                           ? "get_or_create"
                                           : "create"}};
  out["workspace"] = settings_.workspace.empty()
                       ? json::document{}
                       : json::document(settings_.workspace);
  return out.dump(-1, ' ', false, json::document::error_handler_t::replace);
}

sink_result comet_archive::finish(std::chrono::system_clock::time_point time) {
  if (packed_)
    return {};
  auto messages = read_file(messages_path(), max_messages);
  if (!messages)
    return fails(messages.error());
  auto zip = make_zip({{"experiment.json", experiment_json(unix_ms(time))},
                       {"messages.json", messages->substr(0, size_)}});
  if (!zip)
    return sink_fails(sink_failure::kind::permanent, zip.error());
  auto ok = may_write(over_, path()).and_then([&] {
    return replace_file(path(), *zip);
  });
  if (!ok)
    return fails(ok.error());
  packed_ = true;
  boost::system::error_code ignored; // The archive has all messages.
  fs::remove(messages_path(), ignored);
  return {};
}

expected<std::vector<fs::path>> comet_archives(const comet_settings& settings) {
  std::vector<fs::path> result;
  boost::system::error_code code;
  for (fs::directory_iterator i{settings.offline_directory, code}, end;
       !code && i != end; i.increment(code)) {
    auto name = i->path().stem().string();
    auto& key = settings.experiment_key;
    if (i->path().extension() == ".zip"
        && (name == key || name.starts_with(key + '-')))
      result.push_back(i->path());
  }
  if (code && code.value() != ENOENT)
    return tl::unexpected{
      storage_error("list", settings.offline_directory, code.value())};
  std::ranges::sort(result);
  return result;
}

} // namespace troupe
