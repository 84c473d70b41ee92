#pragma once

#include <memory>
#include <vector>

#include "troupe/trainers/torch/data_parallel/data_parallel_options.hpp"
#include "troupe/trainers/torch/data_parallel/model_tensors.hpp"

namespace c10d {
class Reducer;
}

namespace troupe {

/// A Reducer over *parameters* (all trainable, on one device) for the LibTorch
/// that this is compiled with. No collective.
std::shared_ptr<c10d::Reducer>
make_reducer(const std::vector<named_tensor>& parameters,
             const c10::intrusive_ptr<c10d::ProcessGroup>& group,
             const data_parallel_options& options);

} // namespace troupe
