#include "troupe/trainers/torch/images/image_file.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/ops/empty.h>
#include <png.h>
#include <turbojpeg.h>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"
#include "troupe/trainers/train_error.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Of a file; images are far below.
constexpr std::size_t max_image_bytes = 1024 * 1024 * 1024;
/// Of each side: what memory a few bytes of a damaged header may ask for.
constexpr std::int64_t max_pixels = std::int64_t{1} << 28;

using reason = tl::unexpected<std::string>;
using decoded = tl::expected<at::Tensor, std::string>;

const unsigned char* bytes_of(const std::string& x) {
  return reinterpret_cast<const unsigned char*>(x.data());
}

bool is_possible(std::int64_t height, std::int64_t width) {
  return height >= 1 && width >= 1 && height <= max_pixels / width;
}

reason impossible(std::int64_t height, std::int64_t width) {
  return reason{concat("it has ", width, " x ", height, " pixels")};
}

decoded new_pixels(std::int64_t height, std::int64_t width, int channels) {
  if (!is_possible(height, width))
    return impossible(height, width);
  return at::empty({height, width, channels}, at::kByte);
}

/// `[height, width, channels]` as channels first; what follows the third is
/// dropped.
at::Tensor channels_first(const at::Tensor& x) {
  return x.narrow(2, 0, 3).permute({2, 0, 1}).contiguous();
}

struct end_decompression {
  void operator()(void* x) const noexcept { tjDestroy(x); }
};

/// RGB of the inverted inks that JPEG files have.
at::Tensor from_inks(const at::Tensor& x) {
  auto wide = x.to(at::kInt);
  return wide.narrow(2, 0, 3)
    .mul(wide.narrow(2, 3, 1))
    .add(127)
    .div(255, "floor")
    .to(at::kByte);
}

/// The smallest part of the sides whose shorter one has *least* pixels. Of
/// eighths only those for which libjpeg-turbo has fast code.
tjscalingfactor part_of(int width, int height, std::int64_t least) {
  tjscalingfactor result{1, 1};
  auto shorter = std::min(width, height);
  for (int n = 2; n <= 8 && least > 0 && (shorter + n - 1) / n >= least; n *= 2)
    result.denom = n;
  return result;
}

/// Whether the end of the picture is in the JPEG file *x*. A thumbnail before
/// it and other pictures or a film after it have ends of their own.
bool has_end(std::string_view x) {
  auto byte = [x](std::size_t i) { return static_cast<unsigned char>(x[i]); };
  std::size_t i = 2; // after the start of the picture
  while (x.size() - i >= 4) {
    auto marker = byte(i + 1);
    if (byte(i) != 0xff || marker == 0xff) { // data, or a byte that fills
      ++i;
      continue;
    }
    if (marker == 0xd9)
      return true;
    // A byte of data, a restart or a start stands alone; segments have a size.
    auto is_alone = marker <= 1 || (marker >= 0xd0 && marker <= 0xd8);
    auto size = is_alone ? 0 : byte(i + 2) << 8 | byte(i + 3);
    i += std::min(x.size() - i, static_cast<std::size_t>(size) + 2);
  }
  return x.substr(i).find("\xff\xd9") != x.npos;
}

/// Whether *why*, with which libjpeg-turbo decoded *file*, is a warning about
/// bytes that do not matter. Its code says so of an error, too, if there was a
/// warning before; and of several warnings it keeps the first.
bool is_readable(std::string_view file, std::string_view why) {
  constexpr std::array<std::string_view, 5> harmless{
    "Corrupt JPEG data: ", "Inconsistent progression sequence ",
    "Invalid SOS parameters for sequential JPEG", "Unknown Adobe color ",
    "Warning: "};
  auto begins = [why](std::string_view x) { return why.starts_with(x); };
  return std::ranges::any_of(harmless, begins) && has_end(file);
}

decoded decode_jpeg(const std::string& file, std::int64_t least) {
  std::unique_ptr<void, end_decompression> turbo{tjInitDecompress()};
  if (!turbo)
    return reason{"libjpeg-turbo does not start"};
  int width = 0, height = 0, sampling = 0, space = 0;
  auto problem = tjDecompressHeader3(turbo.get(), bytes_of(file), file.size(),
                                     &width, &height, &sampling, &space);
  // After a warning it has found the size; then the pixels decide.
  if (problem != 0
      && (tjGetErrorCode(turbo.get()) != TJERR_WARNING || width < 1))
    return reason{tjGetErrorStr2(turbo.get())};
  if (!is_possible(height, width)) // A part of it needs memory for the whole.
    return impossible(height, width);
  auto part = part_of(width, height, least);
  width = TJSCALED(width, part);
  height = TJSCALED(height, part);
  auto has_inks = space == TJCS_CMYK || space == TJCS_YCCK;
  auto pixels = new_pixels(height, width, has_inks ? 4 : 3);
  if (!pixels)
    return pixels;
  // Each of the scans of a progressive file, a few bytes, goes over all pixels.
  auto status = tjDecompress2(turbo.get(), bytes_of(file), file.size(),
                              pixels->mutable_data_ptr<unsigned char>(), width,
                              0, height, has_inks ? TJPF_CMYK : TJPF_RGB,
                              TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  if (status != 0) {
    std::string why = tjGetErrorStr2(turbo.get());
    if (tjGetErrorCode(turbo.get()) != TJERR_WARNING || !is_readable(file, why))
      return reason{std::move(why)};
  }
  return channels_first(has_inks ? from_inks(*pixels) : *pixels);
}

/// The PNG file *x* without what says how bright or of which color its values
/// are meant: libpng would convert them, Pillow takes them as they are.
std::string without_color_space(std::string_view x) {
  constexpr std::array<std::string_view, 5> dropped{"gAMA", "cHRM", "sRGB",
                                                    "iCCP", "cICP"};
  constexpr std::size_t signature = 8;
  constexpr std::size_t around = 12; // length and type; the checksum
  auto at = std::min(signature, x.size());
  std::string result{x.substr(0, at)};
  result.reserve(x.size());
  while (x.size() - at >= around) {
    std::size_t size = 0;
    for (auto byte : x.substr(at, 4))
      size = size << 8 | static_cast<unsigned char>(byte);
    auto chunk = x.substr(at, size + around); // less if it is cut off
    if (std::ranges::find(dropped, chunk.substr(4, 4)) == dropped.end())
      result += chunk;
    at += chunk.size();
  }
  result += x.substr(at);
  return result;
}

decoded decode_png(const std::string& whole) {
  auto file = without_color_space(whole);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  std::unique_ptr<png_image, void (*)(png_image*)> owner{&image,
                                                         png_image_free};
  if (!png_image_begin_read_from_memory(&image, file.data(), file.size()))
    return reason{image.message};
  // Otherwise libpng takes 16 bits for linear brightness.
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  // With its transparency, which is dropped after: libpng would blend it.
  image.format = PNG_FORMAT_RGBA;
  auto pixels = new_pixels(image.height, image.width, 4);
  if (!pixels)
    return pixels;
  if (!png_image_finish_read(
        &image, nullptr, pixels->mutable_data_ptr<unsigned char>(), 0, nullptr))
    return reason{image.message};
  return channels_first(*pixels);
}

decoded decode(const std::string& file, const image_options& how) {
  auto begins = [&](std::string_view x) { return file.starts_with(x); };
  if (begins("\xff\xd8"))
    return decode_jpeg(file, how.decode_at_least);
  if (begins("\x89PNG"))
    return decode_png(file);
  return reason{file.empty() ? "it is empty" : "it is neither JPEG nor PNG"};
}

} // namespace

at::Tensor read_image(const fs::path& path, const image_options& how) {
  require_at_least(0, how.decode_at_least, "image_options::decode_at_least");
  auto file = value_or_throw(read_file(path, max_image_bytes));
  auto result = decode(file, how);
  if (!result)
    throw train_error{{ec::corrupt, concat(path.string(),
                                           " is not an image "
                                           "that can be read: ",
                                           result.error())}};
  return std::move(*result);
}

} // namespace troupe
