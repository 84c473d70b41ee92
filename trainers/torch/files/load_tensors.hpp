#pragma once

#include "troupe/trainers/torch/files/load_options.hpp"
#include "troupe/trainers/torch/files/named_tensors.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// Copies *saved* into the tensors of *target*; data types are converted.
/// Throws `train_error` that lists all missing, unexpected and differently
/// shaped names, and then nothing was copied.
void load_into(const tensor_map& saved, const tensor_map& target,
               const load_options& options = {});

/// Copies *saved* into the parameters and buffers of *model*.
template <class Model>
  requires model_like<std::remove_reference_t<Model>>
void load_tensors(const tensor_map& saved, Model&& model,
                  const load_options& options = {}) {
  load_into(saved, named_tensors(model), options);
}

} // namespace troupe
