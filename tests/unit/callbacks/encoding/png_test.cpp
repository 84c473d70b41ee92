#include "troupe/callbacks/encoding/png.hpp"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#include <stb/stb_image.h>

namespace troupe::internal {
namespace {

using bytes = std::vector<std::uint8_t>;

bytes pixels_of(const std::string& png, int width, int height, int channels) {
  int size[3] = {};
  auto* pixels = stbi_load_from_memory(
    reinterpret_cast<const stbi_uc*>(png.data()), static_cast<int>(png.size()),
    &size[0], &size[1], &size[2], 0);
  EXPECT_TRUE(pixels) << stbi_failure_reason();
  EXPECT_EQ(std::vector(size, size + 3),
            (std::vector{width, height, channels}));
  bytes result(pixels, pixels + (pixels ? size[0] * size[1] * size[2] : 0));
  stbi_image_free(pixels);
  return result;
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
        auto png = encode_png(width, height, channels, pixels);
        ASSERT_TRUE(png) << png.error().message;
        EXPECT_EQ(pixels_of(*png, width, height, channels), pixels);
      }
}

TEST(png_test, names_the_colors_by_the_number_of_channels) {
  const char types[] = {0, 4, 2, 6};
  for (int channels = 1; channels <= 4; ++channels) {
    auto png =
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
  auto png = encode_png(256, 256, 1, pixels);
  ASSERT_TRUE(png);
  EXPECT_LT(png->size(), 2000u);
}

TEST(png_test, refuses_what_is_not_an_image) {
  EXPECT_EQ(encode_png(0, 1, 1, {}).error().code, ec::invalid_argument);
  EXPECT_EQ(encode_png(1, -1, 1, {}).error().code, ec::invalid_argument);
  EXPECT_EQ(encode_png(1, 1, 5, bytes(5)).error().message,
            "an image with 5 channels: 1 (gray) to 4 (RGB with alpha) are "
            "possible");
  EXPECT_EQ(encode_png(2, 2, 3, bytes(11)).error().message,
            "an image of 2 x 2 pixels with 3 channels needs 12 bytes, it has "
            "11");
  EXPECT_EQ(encode_png(2, 2, 1, bytes(5)).error().message,
            "an image of 2 x 2 pixels with 1 channel needs 4 bytes, it has 5");
}

} // namespace
} // namespace troupe::internal
