#include "troupe/callbacks/encoding/png.hpp"

#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

namespace troupe {
namespace {

using bytes = std::vector<std::uint8_t>;

std::uint32_t big_endian(const std::string& text, std::size_t at) {
  std::uint32_t result = 0;
  for (std::size_t i = 0; i < 4; ++i)
    result = result << 8 | static_cast<unsigned char>(text[at + i]);
  return result;
}

struct chunk {
  std::string type;
  std::string data;
};

// The chunks of a PNG file whose checksums are right.
std::vector<chunk> chunks_of(const std::string& png) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::vector<chunk> result;
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const auto size = big_endian(png, at);
    const auto body = png.substr(at + 4, size + 4);
    EXPECT_EQ(big_endian(png, at + 8 + size),
              ::crc32(0, reinterpret_cast<const Bytef*>(body.data()),
                      static_cast<uInt>(body.size())));
    result.push_back({body.substr(0, 4), body.substr(4)});
    at += size + 12;
  }
  return result;
}

// Undoes filters 0 to 2 as the PNG specification describes them.
bytes unfiltered(const bytes& rows, std::size_t row_size, std::size_t depth) {
  bytes result;
  for (std::size_t at = 0; at < rows.size(); at += row_size + 1)
    for (std::size_t i = 0; i < row_size; ++i) {
      const auto filter = rows[at];
      EXPECT_LE(filter, 2);
      const auto left = i >= depth ? result[result.size() - depth] : 0;
      const auto above =
        result.size() >= row_size ? result[result.size() - row_size] : 0;
      const auto add = filter == 1 ? left : filter == 2 ? above : 0;
      result.push_back(static_cast<std::uint8_t>(rows[at + 1 + i] + add));
    }
  return result;
}

bytes pixels_of(const std::string& png, int width, int height, int channels) {
  const auto chunks = chunks_of(png);
  EXPECT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[0].type, "IHDR");
  EXPECT_EQ(big_endian(chunks[0].data, 0), static_cast<unsigned>(width));
  EXPECT_EQ(big_endian(chunks[0].data, 4), static_cast<unsigned>(height));
  EXPECT_EQ(chunks[0].data[8], 8);
  EXPECT_EQ(chunks[1].type, "IDAT");
  EXPECT_EQ(chunks[2].type, "IEND");
  const auto row = static_cast<std::size_t>(width * channels);
  bytes rows((row + 1) * static_cast<std::size_t>(height));
  uLongf size = rows.size();
  EXPECT_EQ(::uncompress(rows.data(), &size,
                         reinterpret_cast<const Bytef*>(chunks[1].data.data()),
                         chunks[1].data.size()),
            Z_OK);
  EXPECT_EQ(size, rows.size());
  return unfiltered(rows, row, static_cast<std::size_t>(channels));
}

TEST(png_test, preserves_every_pixel) {
  std::mt19937 random{7};
  for (int channels = 1; channels <= 4; ++channels)
    for (auto [width, height] : {std::pair{1, 1}, {7, 5}, {28, 28}, {3, 100}})
      for (int noise : {1, 256}) {
        bytes pixels(static_cast<std::size_t>(width * height * channels));
        for (std::size_t i = 0; i < pixels.size(); ++i)
          pixels[i] = static_cast<std::uint8_t>(
            i * 3 + random() % static_cast<unsigned>(noise));
        const auto png = encode_png(width, height, channels, pixels);
        ASSERT_TRUE(png) << png.error().message;
        EXPECT_EQ(pixels_of(*png, width, height, channels), pixels);
      }
}

TEST(png_test, names_the_colours_by_the_number_of_channels) {
  const char types[] = {0, 4, 2, 6};
  for (int channels = 1; channels <= 4; ++channels) {
    const auto png =
      encode_png(1, 1, channels, bytes(static_cast<std::size_t>(channels)));
    ASSERT_TRUE(png);
    EXPECT_EQ((*png)[25], types[channels - 1]);
  }
}

TEST(png_test, compresses_a_smooth_image_well) {
  bytes pixels;
  for (int y = 0; y < 256; ++y)
    for (int x = 0; x < 256; ++x)
      pixels.push_back(static_cast<std::uint8_t>(x + y));
  const auto png = encode_png(256, 256, 1, pixels);
  ASSERT_TRUE(png);
  EXPECT_LT(png->size(), 2000u);
}

TEST(png_test, refuses_what_is_not_an_image) {
  EXPECT_EQ(encode_png(0, 1, 1, {}).error().code, ec::invalid_argument);
  EXPECT_EQ(encode_png(1, -1, 1, {}).error().code, ec::invalid_argument);
  EXPECT_EQ(encode_png(1, 1, 5, bytes(5)).error().message,
            "an image with 5 channels: 1 (grey) to 4 (RGB with alpha) are "
            "possible");
  EXPECT_EQ(encode_png(2, 2, 3, bytes(11)).error().message,
            "an image of 2 x 2 pixels with 3 channels needs 12 bytes, it has "
            "11");
}

} // namespace
} // namespace troupe
