#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "troupe/trainers/torch/data/batch_traits.hpp"
#include "troupe/trainers/torch/data/dataset_error.hpp"
#include "troupe/trainers/torch/data/epoch_random.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// A dataset that makes a whole batch at once.
template <class T>
concept batch_dataset = requires(T& x, std::span<const std::int64_t> indices) {
  x.size();
  x.get_batch(indices);
};

/// A dataset that makes a whole batch at once, with random numbers.
template <class T>
concept random_batch_dataset = requires(T& x,
                                        std::span<const std::int64_t> indices,
                                        const sample_generators& random) {
  x.size();
  x.get_batch(indices, random);
};

/// A dataset of single samples; `torch::data::Dataset` is one.
template <class T>
concept sample_dataset = requires(T& x, std::size_t index) {
  x.size();
  x.get(index);
};

/// A dataset of single samples that are made with random numbers.
template <class T>
concept random_sample_dataset = requires(T& x, std::size_t index,
                                         at::Generator& random) {
  x.size();
  x.get(index, random);
};

/// Anything that `prepare_data_loader` reads.
template <class T>
concept map_dataset = batch_dataset<T> || random_batch_dataset<
  T> || sample_dataset<T> || random_sample_dataset<T>;

/// How datasets are read. Of several ways the first one that a dataset has is
/// taken.
enum class reading { random_batches, random_samples, batches, samples, none };

template <class T>
inline constexpr reading reading_of =
  random_batch_dataset<T>    ? reading::random_batches
  : random_sample_dataset<T> ? reading::random_samples
  : batch_dataset<T>         ? reading::batches
  : sample_dataset<T>        ? reading::samples
                             : reading::none;

/// Whether several threads may read one object: a dataset promises it by const
/// functions. Of another each thread gets a copy.
template <class T>
inline constexpr bool shared_by_threads = reading_of<const T> == reading_of<T>;

/// Number of samples of *x*, whose `size()` may be optional.
template <map_dataset T>
std::int64_t dataset_size(T& x) {
  if constexpr (requires { x.size().value(); })
    return static_cast<std::int64_t>(x.size().value());
  else
    return static_cast<std::int64_t>(x.size());
}

/// The batch of the samples *indices*, made with *random* if the dataset wants
/// it. Throws as `throw_dataset_error`; once *stop* is requested it may throw
/// anything.
template <map_dataset T>
auto read_batch(T& x, const std::vector<std::int64_t>& indices,
                const sample_generators& random,
                const std::stop_token& stop = {}) {
  constexpr auto how = reading_of<T>;
  if constexpr (how == reading::random_batches || how == reading::batches) {
    try {
      const std::span<const std::int64_t> all{indices};
      if constexpr (how == reading::random_batches)
        return x.get_batch(all, random);
      else
        return x.get_batch(all);
    } catch (...) {
      throw_dataset_error(indices);
    }
  } else {
    auto read = [&](std::int64_t index) {
      if constexpr (how == reading::random_samples) {
        auto generator = random.of(index);
        return x.get(static_cast<std::size_t>(index), generator);
      } else {
        return x.get(static_cast<std::size_t>(index));
      }
    };
    using sample = std::remove_cvref_t<decltype(read(0))>;
    std::vector<sample> samples;
    samples.reserve(indices.size());
    for (const auto& index : indices) {
      if (stop.stop_requested())
        throw run_stopped{{ec::stopped, "no one waits for this batch"}};
      try {
        samples.push_back(read(index));
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
using batch_type = decltype(read_batch(std::declval<T&>(), {},
                                       std::declval<sample_generators>()));

} // namespace troupe
