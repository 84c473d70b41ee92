#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "troupe/trainers/torch/data/epoch_random.hpp"

namespace troupe {

/// The first *limit* samples of another dataset.
template <class Dataset>
class first_samples {
public:
  first_samples(Dataset dataset, std::int64_t limit)
    : dataset_(std::move(dataset)),
      size_(std::clamp<std::int64_t>(limit, 0, dataset_.size())) {}

  std::int64_t size() const noexcept { return size_; }

  auto get(std::int64_t index) const requires requires(const Dataset& x) {
    x.get(index);
  }
  { return dataset_.get(index); }

  auto get(std::int64_t index, at::Generator& random) const requires
    requires(const Dataset& x) {
    x.get(index, random);
  }
  { return dataset_.get(index, random); }

  auto get_batch(std::span<const std::int64_t> indices) const requires
    requires(const Dataset& x) {
    x.get_batch(indices);
  }
  { return dataset_.get_batch(indices); }

  auto get_batch(std::span<const std::int64_t> indices,
                 const sample_generators& random) const requires
    requires(const Dataset& x) {
    x.get_batch(indices, random);
  }
  { return dataset_.get_batch(indices, random); }

private:
  Dataset dataset_;
  std::int64_t size_;
};

} // namespace troupe
