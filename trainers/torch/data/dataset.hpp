#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "troupe/trainers/torch/data/epoch_random.hpp"
#include "troupe/trainers/torch/visit_tensors.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

namespace internal {

/// `torch::data::Example`.
template <class T>
concept has_data_and_target = requires(T& x) {
  x.data;
  x.target;
};

/// References to the fields of *x*.
template <class T>
auto fields(T& x) {
  if constexpr (has_members<T>)
    return x.members();
  else if constexpr (has_data_and_target<T>)
    return std::tie(x.data, x.target);
  else
    return std::apply([](auto&... field) { return std::tie(field...); }, x);
}

template <class T>
concept has_fields =
  tuple_of_fields<T> || has_members<T> || has_data_and_target<T>;

} // namespace internal

/// Makes one batch of *samples*: tensors of equal shape are stacked in a new
/// first dimension, numbers become a tensor `[n]` (float32 for float, float64
/// for double, bool for bool, int64 for integers), fields are put together
/// one by one, everything else becomes a vector. A struct with `members()`
/// becomes the same struct, so its fields must be tensors.
template <class T>
auto collate(std::vector<T> samples) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return at::stack(samples);
  } else if constexpr (std::is_arithmetic_v<T>) {
    constexpr auto type = std::is_same_v<T, bool>       ? at::kBool
                          : std::is_same_v<T, float>    ? at::kFloat
                          : std::is_floating_point_v<T> ? at::kDouble
                                                        : at::kLong;
    using wide =
      std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    return at::tensor(std::vector<wide>(samples.begin(), samples.end()))
      .to(type);
  } else if constexpr (internal::has_fields<T>) {
    auto column = [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      using fields_type = decltype(internal::fields(samples.front()));
      using field =
        std::remove_reference_t<std::tuple_element_t<I, fields_type>>;
      std::vector<field> values;
      values.reserve(samples.size());
      for (auto& sample : samples)
        values.push_back(std::move(std::get<I>(internal::fields(sample))));
      return collate(std::move(values));
    };
    constexpr auto n =
      std::tuple_size_v<decltype(internal::fields(samples.front()))>;
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      if constexpr (internal::has_members<T>) {
        T batch;
        internal::fields(batch) =
          std::tuple{column(std::integral_constant<std::size_t, I>{})...};
        return batch;
      } else if constexpr (n == 2) {
        return std::pair{column(std::integral_constant<std::size_t, I>{})...};
      } else {
        return std::tuple{column(std::integral_constant<std::size_t, I>{})...};
      }
    }
    (std::make_index_sequence<n>{});
  } else {
    return samples;
  }
}

namespace internal {

/// A dataset that puts its samples, of type *T*, into batches itself.
template <class D, class T>
concept has_collate = requires(const D& x, std::vector<T> samples) {
  x.collate(std::move(samples));
};

/// The batch of *samples*, made by *x* if it has a `collate`.
template <class D, class T>
auto collate_by(const D& x, std::vector<T> samples) {
  if constexpr (has_collate<D, T>)
    return x.collate(std::move(samples));
  else
    return collate(std::move(samples));
}

/// Whether *x* has something for each of *n* samples: a tensor with that many
/// rows or a range of that size, in any of its fields. True for types that
/// cannot be looked into.
template <class T>
bool has_rows(const T& x, std::int64_t n) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return x.defined() && x.dim() > 0 && x.size(0) == n;
  } else if constexpr (is_optional<T>) {
    return x && has_rows(*x, n);
  } else if constexpr (has_fields<T>) {
    auto& fields_of = const_cast<T&>(x); // members() need not be const
    return std::apply(
      [n](const auto&... field) { return (has_rows(field, n) || ...); },
      fields(fields_of));
  } else if constexpr (std::ranges::sized_range<const T>) {
    if (static_cast<std::int64_t>(std::ranges::size(x)) == n)
      return true;
    for (const auto& element : x)
      if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(element)>, T>)
        if (has_rows(element, n))
          return true;
    return false;
  } else {
    return !std::is_arithmetic_v<T>;
  }
}

[[noreturn]] void throw_wrong_rows(std::int64_t samples);

/// Throws unless *batch*, which was made of *samples* samples, has rows for
/// them.
template <class Batch>
void check_rows(const Batch& batch, std::int64_t samples) {
  if (!has_rows(batch, samples))
    throw_wrong_rows(samples);
}

/// Call it in a catch block: throws a `train_error` that says *what* failed and
/// what was thrown, with the original exception nested in it. A `run_stopped`
/// passes unchanged.
[[noreturn]] void throw_nested_error(const std::string& what);

/// The same, of a dataset: it names the samples *indices* and what the dataset
/// threw, with the original exception nested in it. A `run_stopped` passes
/// unchanged.
[[noreturn]] void throw_dataset_error(std::span<const std::int64_t> indices);

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

template <class T>
concept dataset_of_batches = batch_dataset<T> || random_batch_dataset<T>;

template <class T>
concept dataset_of_samples = sample_dataset<T> || random_sample_dataset<T>;

} // namespace internal

/// Anything that `prepare_data_loader` reads.
template <class T>
concept map_dataset =
  internal::dataset_of_batches<T> || internal::dataset_of_samples<T>;

namespace internal {

/// How datasets are read: the first of these ways that a dataset has.
enum class reading { random_batches, random_samples, batches, samples, none };

template <class T>
inline constexpr reading reading_of =
  random_batch_dataset<T>    ? reading::random_batches
  : random_sample_dataset<T> ? reading::random_samples
  : batch_dataset<T>         ? reading::batches
  : sample_dataset<T>        ? reading::samples
                             : reading::none;

/// Whether several threads may read one object: a dataset promises it by const
/// functions. Otherwise each thread gets a copy.
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
/// it. With *checks_rows*, a batch that the dataset makes itself must pass
/// `check_rows`. Throws as `throw_dataset_error`; once *stop* is requested it
/// may throw anything.
template <map_dataset T>
auto read_batch(T& x, const std::vector<std::int64_t>& indices,
                const sample_generators& random, bool checks_rows = true,
                const std::stop_token& stop = {}) {
  constexpr auto how = reading_of<T>;
  auto n = static_cast<std::int64_t>(indices.size());
  if constexpr (how == reading::random_batches || how == reading::batches) {
    try {
      const std::span<const std::int64_t> all{indices};
      auto batch = [&] {
        if constexpr (how == reading::random_batches)
          return x.get_batch(all, random);
        else
          return x.get_batch(all);
      }();
      if (checks_rows)
        check_rows(batch, n);
      return batch;
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
      auto batch = collate_by(x, std::move(samples));
      if (has_collate<T, sample> && checks_rows)
        check_rows(batch, n);
      return batch;
    } catch (...) {
      throw_dataset_error(indices);
    }
  }
}

/// What a loop over a loader of *T* yields.
template <map_dataset T>
using batch_type = decltype(read_batch(std::declval<T&>(), {},
                                       std::declval<sample_generators>()));

/// Passes the samples of another dataset on.
template <class Dataset>
class dataset_wrapper {
public:
  explicit dataset_wrapper(Dataset dataset) : dataset_(std::move(dataset)) {}

  auto get(std::int64_t index) const requires requires(const Dataset& x) {
    x.get(index);
  }
  { return dataset_.get(index); }

  auto get(std::int64_t index, at::Generator& random) const requires
    requires(const Dataset& x) {
    x.get(index, random);
  }
  { return dataset_.get(index, random); }

protected:
  Dataset dataset_;
};

} // namespace internal

/// The samples of a dataset that has `get`, in batches made by *Function*,
/// which takes a `std::vector` of them:
///
///   prepare_data_loader(context, with_collate{texts{}, pad_texts}, options)
///
/// A dataset of one's own may have a `collate(std::vector<sample>) const`
/// instead. It is called by several threads at once if there are workers.
template <class Dataset, class Function>
class with_collate : public internal::dataset_wrapper<Dataset> {
public:
  with_collate(Dataset dataset, Function function)
    : internal::dataset_wrapper<Dataset>(std::move(dataset)),
      function_(std::move(function)) {}

  std::int64_t size() const { return internal::dataset_size(this->dataset_); }

  template <class T>
  auto collate(std::vector<T> samples) const {
    return function_(std::move(samples));
  }

private:
  Function function_;
};

/// The first *limit* samples of another dataset.
template <class Dataset>
class first_samples : public internal::dataset_wrapper<Dataset> {
public:
  first_samples(Dataset dataset, std::int64_t limit)
    : internal::dataset_wrapper<Dataset>(std::move(dataset)),
      size_(std::clamp<std::int64_t>(limit, 0, this->dataset_.size())) {}

  std::int64_t size() const noexcept { return size_; }

  auto get_batch(std::span<const std::int64_t> indices) const requires
    requires(const Dataset& x) {
    x.get_batch(indices);
  }
  { return this->dataset_.get_batch(indices); }

  auto get_batch(std::span<const std::int64_t> indices,
                 const sample_generators& random) const requires
    requires(const Dataset& x) {
    x.get_batch(indices, random);
  }
  { return this->dataset_.get_batch(indices, random); }

  template <class T>
  auto collate(
    std::vector<T> samples) const requires internal::has_collate<Dataset, T> {
    return this->dataset_.collate(std::move(samples));
  }

private:
  std::int64_t size_;
};

} // namespace troupe
