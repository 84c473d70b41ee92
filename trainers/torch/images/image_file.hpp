#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/fs.hpp"

namespace troupe {

/// How a file becomes pixels.
struct image_options {
  /// Pixels that the shorter side must have: of a JPEG file of which 1/2, 1/4
  /// or 1/8 of the sides, rounded up, has as many, that part is decoded, which
  /// is faster. As with Pillow's `draft`, a resize after it gives slightly
  /// other pixels than one of the whole picture. 0: the whole picture, as is a
  /// PNG.
  std::int64_t decode_at_least = 0;
};

/// The pixels of the JPEG or PNG file *path*: uint8 `[3, height, width]`, RGB,
/// 0 to 255. Gray images get three equal channels; transparency is dropped;
/// 16 bits are rounded to 8. As with Pillow's `convert("RGB")`, an orientation
/// in the metadata is not applied.
///
/// What a file is, its first bytes say, not its name. Throws `train_error` with
/// the path and the reason, also for a file that is cut off.
at::Tensor read_image(const fs::path& path, const image_options& how = {});

} // namespace troupe
