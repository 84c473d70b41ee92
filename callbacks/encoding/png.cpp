#include "troupe/callbacks/encoding/png.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include <zlib.h>

namespace troupe {

namespace {

void append_big_endian(std::string& out, std::uint32_t x) {
  for (int shift = 24; shift >= 0; shift -= 8)
    out += static_cast<char>(x >> shift);
}

void append_chunk(std::string& out, std::string_view type,
                  std::string_view data) {
  append_big_endian(out, static_cast<std::uint32_t>(data.size()));
  const auto begin = out.size();
  out += type;
  out += data;
  const auto* bytes = reinterpret_cast<const Bytef*>(out.data() + begin);
  append_big_endian(
    out, static_cast<std::uint32_t>(::crc32_z(0, bytes, out.size() - begin)));
}

using row_type = std::span<const std::uint8_t>;

// The PNG filters that help: none, difference to the left, difference to the
// row above.
enum filter : char { none = 0, left = 1, above = 2 };

void append_filtered(std::string& out, filter how, row_type row,
                     row_type previous, std::size_t channels) {
  out += how;
  for (std::size_t i = 0; i < row.size(); ++i) {
    int neighbour = 0;
    if (how == left && i >= channels)
      neighbour = row[i - channels];
    if (how == above && !previous.empty())
      neighbour = previous[i];
    out += static_cast<char>(row[i] - neighbour);
  }
}

// Small differences around zero compress best: the usual estimate for choosing
// a filter.
long cost(std::string_view filtered) {
  long result = 0;
  for (auto byte : filtered)
    result += std::abs(static_cast<signed char>(byte));
  return result;
}

void append_row(std::string& out, row_type row, row_type previous,
                std::size_t channels) {
  const auto begin = out.size();
  append_filtered(out, none, row, previous, channels);
  auto best = cost({out.data() + begin + 1, row.size()});
  std::string other;
  for (auto how : {left, above}) {
    other.clear();
    append_filtered(other, how, row, previous, channels);
    if (const auto x = cost({other.data() + 1, row.size()}); x < best) {
      best = x;
      out.replace(begin, other.size(), other);
    }
  }
}

expected<std::string> compressed(const std::string& bytes) {
  auto size = ::compressBound(bytes.size());
  std::string result(size, '\0');
  const auto code = ::compress2(reinterpret_cast<Bytef*>(result.data()), &size,
                                reinterpret_cast<const Bytef*>(bytes.data()),
                                bytes.size(), Z_DEFAULT_COMPRESSION);
  if (code != Z_OK)
    return failure(ec::unsupported, "zlib cannot compress an image of "
                                      + std::to_string(bytes.size())
                                      + " bytes: " + ::zError(code));
  result.resize(size);
  return result;
}

expected<void> check(int width, int height, int channels, std::size_t bytes) {
  constexpr int max_side = 1 << 20;
  if (width < 1 || height < 1 || width > max_side || height > max_side)
    return failure(ec::invalid_argument,
                   "an image of " + std::to_string(width) + " x "
                     + std::to_string(height)
                     + " pixels: each side must have 1 to 1048576");
  if (channels < 1 || channels > 4)
    return failure(
      ec::invalid_argument,
      "an image with " + std::to_string(channels)
        + " channels: 1 (grey) to 4 (RGB with alpha) are possible");
  const auto wanted = std::size_t{1} * static_cast<std::size_t>(width)
                      * static_cast<std::size_t>(height)
                      * static_cast<std::size_t>(channels);
  if (bytes != wanted)
    return failure(
      ec::invalid_argument,
      "an image of " + std::to_string(width) + " x " + std::to_string(height)
        + " pixels with " + std::to_string(channels) + " channels needs "
        + std::to_string(wanted) + " bytes, it has " + std::to_string(bytes));
  return {};
}

} // namespace

expected<std::string> encode_png(int width, int height, int channels,
                                 std::span<const std::uint8_t> pixels) {
  if (auto ok = check(width, height, channels, pixels.size()); !ok)
    return tl::unexpected{ok.error()};
  static constexpr std::array<char, 5> colour_types{-1, 0, 4, 2, 6};
  const auto depth = static_cast<std::size_t>(channels);
  const auto row_size = static_cast<std::size_t>(width) * depth;
  std::string rows;
  rows.reserve(pixels.size() + static_cast<std::size_t>(height));
  row_type previous;
  for (std::size_t at = 0; at < pixels.size(); at += row_size) {
    const auto row = pixels.subspan(at, row_size);
    append_row(rows, row, previous, depth);
    previous = row;
  }
  auto data = compressed(rows);
  if (!data)
    return tl::unexpected{data.error()};
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(width));
  append_big_endian(header, static_cast<std::uint32_t>(height));
  header += '\x08'; // bits per channel
  header += colour_types[depth];
  header.append(3, '\0'); // deflate, the five filters, not interlaced
  std::string result = "\x89PNG\r\n\x1a\n";
  append_chunk(result, "IHDR", header);
  append_chunk(result, "IDAT", *data);
  append_chunk(result, "IEND", {});
  return result;
}

} // namespace troupe
