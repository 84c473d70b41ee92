#include "troupe/callbacks/comet/zip_file.hpp"

#include <zlib.h>

#include <limits>
#include <optional>

#include "troupe/callbacks/encoding/binary.hpp"

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

// Nothing unless it has *size* bytes, which are no more than the format allows
// for so many packed ones.
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

} // namespace

expected<std::string> make_zip(const std::vector<zip_entry>& entries) {
  constexpr std::size_t limit = std::numeric_limits<std::uint32_t>::max() / 2;
  std::string out, directory;
  for (auto& x : entries) {
    if (x.bytes.size() > limit || out.size() > limit)
      return failure(ec::unsupported,
                     "a zip archive takes no entry " + x.name + " of "
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
    const auto packed_size = u32_at(archive, 18);
    const auto size = u32_at(archive, 22);
    const auto name_size = u32_at(archive, 26) & 0xffff; // no extra
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

} // namespace troupe
