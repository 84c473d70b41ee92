#pragma once

#include <cstdint>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data/epoch_random.hpp"
#include "troupe/trainers/train_error.hpp"

namespace troupe::internal::test {

// Made by tools/image_table.py: 21 x 14 pixels, and what Pillow reads.
inline const fs::path data = TROUPE_TEST_DATA "/images";

/// What Pillow wrote: rows of RGB.
inline at::Tensor rows_of(const fs::path& path, std::int64_t height,
                          std::int64_t width) {
  auto bytes = bytes_of(path);
  return at::from_blob(bytes.data(), {height, width, 3}, at::kByte)
    .permute({2, 0, 1})
    .clone();
}

/// The largest difference of two values.
inline int difference(const at::Tensor& x, const at::Tensor& y) {
  EXPECT_EQ(x.sizes(), y.sizes());
  return (x.to(at::kInt) - y.to(at::kInt)).abs().max().item<int>();
}

inline at::Generator random_of(std::int64_t index) {
  return sample_generators{1, 0}.of(index);
}

/// The sentence of the error that *f* throws; empty: none.
template <class F>
std::string failure_of(F&& f) {
  try {
    f();
  } catch (const train_error& x) {
    return x.what();
  }
  return "";
}

} // namespace troupe::internal::test
