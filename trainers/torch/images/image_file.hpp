#pragma once

#include <ATen/core/Tensor.h>

#include "troupe/runtime/fs.hpp"

namespace troupe {

/// The pixels of the JPEG or PNG file *path*: uint8 `[3, height, width]`, RGB,
/// 0 to 255. Gray images get three equal channels; transparency is dropped;
/// 16 bits are rounded to 8. As with Pillow's `convert("RGB")`, an orientation
/// in the metadata is not applied.
///
/// What a file is, its first bytes say, not its name. Throws `train_error` with
/// the path and the reason, also for a file that is cut off.
at::Tensor read_image(const fs::path& path);

} // namespace troupe
