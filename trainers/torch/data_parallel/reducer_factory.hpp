#pragma once

#include <memory>
#include <vector>

#include "troupe/trainers/torch/data_parallel/data_parallel_options.hpp"
#include "troupe/trainers/torch/data_parallel/model_tensors.hpp"

namespace c10d {
class Reducer;
}

namespace troupe::internal {

struct gradient_sink_state;

/// A Reducer over *parameters* (all trainable, on one device) for the LibTorch
/// that this is compiled with. Not a collective.
///
/// With *sync* and *sink*, a backward that it would not average throws
/// `train_error`, unless *sync* is false: one without a forward of the
/// data-parallel model before it, and the first one of a static graph if it
/// does not come through *sink*.
std::shared_ptr<c10d::Reducer>
make_reducer(const std::vector<named_tensor>& parameters,
             const c10::intrusive_ptr<c10d::ProcessGroup>& group,
             const data_parallel_options& options,
             std::shared_ptr<const bool> sync = nullptr,
             std::shared_ptr<gradient_sink_state> sink = nullptr);

/// Throws `train_error` if *x*, a Reducer of `make_reducer` with *sync* and
/// *sink*, has received gradients that it did not average, see
/// `distributed_data_parallel::check_backward`.
void check_backward(const c10d::Reducer& x);

/// Throws `train_error` if such a Reducer can average no gradients any more,
/// because a backward failed before all of its own had come.
void refuse_if_unfinished(const c10d::Reducer& x);

/// Whether the last backward of such a Reducer threw and its gradients were not
/// cleared.
bool has_failed(const c10d::Reducer& x);

/// Whether such a Reducer receives the gradients of all its parameters from now
/// on. One that becomes of another type or device gets a gradient accumulator
/// without the Reducer's hook; this puts the earlier one back if the type and
/// the device are the earlier ones again. Not a collective.
bool regain_gradients(c10d::Reducer& x);

} // namespace troupe::internal
