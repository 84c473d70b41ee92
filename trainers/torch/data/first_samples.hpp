#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace troupe {

/// The first *limit* samples of another dataset.
template <class Dataset>
class first_samples {
public:
  first_samples(Dataset dataset, std::int64_t limit)
    : dataset_(std::move(dataset)),
      size_(std::clamp<std::int64_t>(limit, 0, dataset_.size())) {}

  std::int64_t size() const noexcept { return size_; }

  auto get(std::int64_t index) const { return dataset_.get(index); }

  auto get_batch(std::span<const std::int64_t> indices) const requires
    requires(const Dataset& x) {
    x.get_batch(indices);
  }
  { return dataset_.get_batch(indices); }

private:
  Dataset dataset_;
  std::int64_t size_;
};

} // namespace troupe
