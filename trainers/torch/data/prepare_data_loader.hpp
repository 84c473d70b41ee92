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

/// This rank's loader over *dataset*: divided among the ranks of *context*, its
/// batches on the rank's device. Must be called with equal arguments on every
/// rank. Throws `train_error` for options out of range.
///
/// *dataset* has `size()` and either `get(index)`, whose samples are put
/// together by `collate`, or `get_batch(std::span<const std::int64_t>)`. With
/// `workers` its const functions are called by several threads at once; if they
/// are not const, each thread has a copy.
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
  return {std::move(dataset), std::move(sampler), options, device};
}

template <map_dataset Dataset>
data_loader<Dataset>
prepare_data_loader(train_context& context, Dataset dataset,
                    const data_loader_options& options = {}) {
  return prepare_data_loader(
    context, std::make_shared<Dataset>(std::move(dataset)), options);
}

} // namespace troupe
