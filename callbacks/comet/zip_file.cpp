#include "troupe/callbacks/comet/zip_file.hpp"

#include <zlib.h>

#include <limits>

#include "troupe/callbacks/encoding/little_endian.hpp"

namespace troupe {

namespace {

constexpr std::uint16_t version = 20; // 2.0: deflate
constexpr std::uint16_t utf8_names = 1 << 11;
constexpr std::uint16_t deflated = 8;
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

// The fields that an entry's own header and the directory's have in common.
void append_facts(std::string& out, const zip_entry& x,
                  const std::string& packed) {
  auto sum = ::crc32_z(0, reinterpret_cast<const Bytef*>(x.bytes.data()),
                       x.bytes.size());
  append_little_endian(out, version);
  append_little_endian(out, utf8_names);
  append_little_endian(out, deflated);
  append_little_endian(out, std::uint16_t{0}); // time
  append_little_endian(out, first_day);
  append_little_endian(out, static_cast<std::uint32_t>(sum));
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
    append_little_endian(out, std::uint32_t{0x04034b50});
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

} // namespace troupe
