#include "troupe/callbacks/encoding/png.hpp"

#include <cstddef>
#include <cstdlib>

#include <zlib.h>

namespace troupe::internal {

namespace {

// In place of stb's own compressor, whose files are larger. stb frees the
// result.
unsigned char* compressed_rows(unsigned char* rows, int size, int* packed_size,
                               int) {
  auto space = ::compressBound(static_cast<uLong>(size));
  auto* result = static_cast<unsigned char*>(std::malloc(space));
  if (result
      && ::compress2(result, &space, rows, static_cast<uLong>(size),
                     Z_DEFAULT_COMPRESSION)
           != Z_OK) {
    std::free(result);
    return nullptr;
  }
  *packed_size = static_cast<int>(space);
  return result;
}

} // namespace

} // namespace troupe::internal

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#define STBIW_ZLIB_COMPRESS troupe::internal::compressed_rows
#include <stb/stb_image_write.h>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

expected<void> check(int width, int height, int channels, std::size_t bytes) {
  constexpr int max_side = 1 << 20;
  constexpr std::size_t max_bytes = 1 << 30; // stb counts in `int`.
  if (width < 1 || height < 1 || width > max_side || height > max_side)
    return failure(ec::invalid_argument,
                   concat("an image of ", width, " x ", height,
                          " pixels: each side must have 1 to 1048576"));
  if (channels < 1 || channels > 4)
    return failure(
      ec::invalid_argument,
      concat("an image with ", channels,
             " channels: 1 (gray) to 4 (RGB with alpha) are possible"));
  auto wanted = std::size_t{1} * static_cast<std::size_t>(width)
                * static_cast<std::size_t>(height)
                * static_cast<std::size_t>(channels);
  if (bytes != wanted)
    return failure(ec::invalid_argument,
                   concat("an image of ", width, " x ", height, " pixels with ",
                          counted(channels, "channel"), " needs ", wanted,
                          " bytes, it has ", bytes));
  if (bytes > max_bytes)
    return failure(
      ec::unsupported,
      concat("an image of ", bytes, " bytes: at most 1 GiB is possible"));
  return {};
}

} // namespace

expected<std::string> encode_png(int width, int height, int channels,
                                 std::span<const std::uint8_t> pixels) {
  TROUPE_TRY_VOID(check(width, height, channels, pixels.size()));
  std::string result;
  auto append = [](void* out, void* bytes, int size) {
    static_cast<std::string*>(out)->append(static_cast<char*>(bytes),
                                           static_cast<std::size_t>(size));
  };
  if (stbi_write_png_to_func(append, &result, width, height, channels,
                             pixels.data(), width * channels)
      == 0)
    return failure(ec::unsupported, concat("no memory to compress an image of ",
                                           pixels.size(), " bytes"));
  return result;
}

} // namespace troupe::internal
