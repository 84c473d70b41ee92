#pragma once

#include <memory>
#include <utility>

#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// The device for batches under *options*; throws `train_error` for options out
/// of range.
c10::Device check_loader_options(train_context& context,
                                 const data_loader_options& options);

/// Where this rank shows that it waits for a batch.
std::shared_ptr<rank_activity> loader_activity(train_context& context);

/// This rank's loader over *dataset*: divided among the ranks of *context*, its
/// batches on the rank's device. Must be called with equal arguments on every
/// rank. Throws `train_error` for options out of range.
///
/// *dataset* has `size()` and either `get(index)`, whose samples are put
/// together by `collate`, or `get_batch(std::span<const std::int64_t>)`. With
/// `workers` its const functions are called by several threads at once; if they
/// are not const, each thread has a copy.
///
/// A dataset that draws random numbers, such as for augmentation, takes them
/// from a second parameter: `get(index, at::Generator random)`, as in
/// `torch::rand({2}, random)`, or `get_batch(indices, const sample_generators&
/// random)` with `random.of(index)`. Then a sample depends on seed, epoch and
/// index alone, for any number of workers and ranks. LibTorch's default
/// generator is the model's: several threads would draw from it in any order.
template <map_dataset Dataset>
data_loader<Dataset>
prepare_data_loader(train_context& context, std::shared_ptr<Dataset> dataset,
                    const data_loader_options& options = {}) {
  auto device = check_loader_options(context, options);
  distributed_sampler sampler{dataset_size(*dataset),
                              {.batch_size = options.batch_size,
                               .rank = context.rank(),
                               .world_size = context.world_size(),
                               .shuffle = options.shuffle,
                               .seed = options.seed,
                               .tail = options.tail}};
  data_loader<Dataset> result{std::move(dataset), std::move(sampler), options,
                              device};
  result.show_waits_in(loader_activity(context));
  return result;
}

template <map_dataset Dataset>
data_loader<Dataset>
prepare_data_loader(train_context& context, Dataset dataset,
                    const data_loader_options& options = {}) {
  return prepare_data_loader(
    context, std::make_shared<Dataset>(std::move(dataset)), options);
}

} // namespace troupe
