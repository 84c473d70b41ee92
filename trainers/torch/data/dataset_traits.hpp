#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "troupe/trainers/torch/data/batch_traits.hpp"
#include "troupe/trainers/torch/data/dataset_error.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// A dataset that makes a whole batch at once.
template <class T>
concept batch_dataset = requires(T& x, std::span<const std::int64_t> indices) {
  x.size();
  x.get_batch(indices);
};

/// A dataset of single samples; `torch::data::Dataset` is one.
template <class T>
concept sample_dataset = requires(T& x, std::size_t index) {
  x.size();
  x.get(index);
};

/// Anything that `prepare_data_loader` reads.
template <class T>
concept map_dataset = batch_dataset<T> || sample_dataset<T>;

/// Whether several threads may read one object: a dataset promises it by const
/// functions. Of another each thread gets a copy.
template <class T>
inline constexpr bool shared_by_threads = map_dataset<const T>;

/// Number of samples of *x*, whose `size()` may be optional.
template <map_dataset T>
std::int64_t dataset_size(T& x) {
  if constexpr (requires { x.size().value(); })
    return static_cast<std::int64_t>(x.size().value());
  else
    return static_cast<std::int64_t>(x.size());
}

/// The batch of the samples *indices*. Throws as `throw_dataset_error`; once
/// *stop* is requested it may throw anything.
template <map_dataset T>
auto read_batch(T& x, const std::vector<std::int64_t>& indices,
                const std::stop_token& stop = {}) {
  if constexpr (batch_dataset<T>) {
    try {
      return x.get_batch(std::span<const std::int64_t>{indices});
    } catch (...) {
      throw_dataset_error(indices);
    }
  } else {
    using sample = std::remove_cvref_t<decltype(x.get(std::size_t{}))>;
    std::vector<sample> samples;
    samples.reserve(indices.size());
    for (const auto& index : indices) {
      if (stop.stop_requested())
        throw run_stopped{
          {ec::stopped, "nobody waits for this batch any more"}};
      try {
        samples.push_back(x.get(static_cast<std::size_t>(index)));
      } catch (...) {
        throw_dataset_error({&index, 1});
      }
    }
    try {
      return collate(std::move(samples));
    } catch (...) {
      throw_dataset_error(indices);
    }
  }
}

/// What the loop over a loader of *T* gets.
template <map_dataset T>
using batch_type = decltype(read_batch(std::declval<T&>(), {}));

} // namespace troupe
