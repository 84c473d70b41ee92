#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Which part of a dataset.
enum class split : std::uint8_t { train, test };

/// FashionMNIST as Debian's package dataset-fashion-mnist brings it: four gzip
/// files in IDX format, 60,000 training and 10,000 test images of ten classes.
///
/// Copies share the bytes; reading is thread-safe.
class fashion_mnist {
public:
  /// Images, float32 `[n, 1, 28, 28]` from -1 to 1 (`(x / 255 - 0.5) / 0.5`),
  /// and labels, int64 `[n]` from 0 to 9; without `[n]` for a single sample.
  using sample = std::pair<at::Tensor, at::Tensor>;

  /// Where Debian's package puts the files.
  static const fs::path& default_root();

  /// Reads the files of *part* below *root*. Throws `train_error` with the path
  /// of a file that is missing or damaged.
  fashion_mnist(const fs::path& root, split part);

  explicit fashion_mnist(split part) : fashion_mnist(default_root(), part) {}

  std::int64_t size() const noexcept;

  sample get(std::int64_t index) const;

  sample get_batch(std::span<const std::int64_t> indices) const;

private:
  struct bytes;

  std::shared_ptr<const bytes> bytes_;
};

} // namespace troupe
