#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "troupe/trainers/torch/data_parallel/model_tensors.hpp"

// Whether the ranks of a group have the same model. Each function is a
// collective with tensors on *device*.

namespace troupe::internal {

/// Whether *tensors* have rank 0's names, in the same order. Tensors are sent
/// in order, so different tensors of the same shape would be mixed.
bool has_names_of_rank_0(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                         const std::vector<named_tensor>& tensors,
                         c10::Device device);

/// What is compared of a tensor that is not on the CPU: a number on its device
/// that depends on each element and its place. *x* is dense.
at::Tensor sum_by_place(const at::Tensor& x);

/// A parameter that is not rank 0's.
struct replica_difference {
  std::int64_t rank = 0;
  std::string parameter;
};

/// The last rank with a parameter that differs from rank 0's in a bit, and the
/// first such parameter; the same on all ranks. Reads all *parameters* once.
std::optional<replica_difference>
find_difference(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                const std::vector<named_tensor>& parameters,
                c10::Device device);

} // namespace troupe::internal
