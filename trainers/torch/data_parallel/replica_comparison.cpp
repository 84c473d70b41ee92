#include "troupe/trainers/torch/data_parallel/replica_comparison.hpp"

#include <bit>
#include <cstddef>

#include <ATen/ATen.h>

#include "troupe/runtime/storage/checksum.hpp"

namespace troupe::internal {

namespace {

using group_ptr = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A number that is different for tensors that differ in a bit.
at::Tensor fingerprint(const at::Tensor& x) {
  constexpr at::ScalarType integers[]{at::kChar, at::kShort, at::kInt,
                                      at::kLong};
  auto bits = x.detach();
  if (!bits.is_non_overlapping_and_dense())
    bits = bits.contiguous();
  if (bits.is_cpu())
    return at::scalar_tensor(
      static_cast<std::int64_t>(checksum(
        {static_cast<const char*>(bits.const_data_ptr()), bits.nbytes()})),
      at::kLong);
  if (bits.is_complex())
    bits = at::view_as_real(bits);
  auto type = integers[std::countr_zero(bits.dtype().itemsize())];
  return bits.view(type).sum(at::kLong);
}

std::vector<at::Tensor> one_number(std::int64_t value, at::Device device) {
  return {at::full({1}, value, at::TensorOptions{at::kLong}.device(device))};
}

} // namespace

bool has_names_of_rank_0(const group_ptr& group,
                         const std::vector<named_tensor>& tensors,
                         at::Device device) {
  std::string names;
  for (auto& x : tensors)
    names += x.name + '\n';
  auto mine = static_cast<std::int64_t>(checksum(names));
  auto first = one_number(mine, device);
  group->broadcast(first)->wait();
  return first[0].item<std::int64_t>() == mine;
}

std::optional<replica_difference>
find_difference(const group_ptr& group,
                const std::vector<named_tensor>& parameters,
                at::Device device) {
  std::vector<at::Tensor> prints;
  for (auto& x : parameters)
    prints.push_back(fingerprint(x.tensor).to(device));
  auto mine = at::stack(prints);
  std::vector<at::Tensor> first{mine.to(device, mine.scalar_type(),
                                        /*non_blocking=*/false, /*copy=*/true)};
  group->broadcast(first)->wait();
  auto differs = first[0].to(at::kCPU).ne(mine.to(at::kCPU));
  constexpr std::int64_t stride = std::int64_t{1} << 32;
  auto found = one_number(-1, device);
  if (differs.any().item<bool>())
    found[0].fill_(group->getRank() * stride
                   + differs.nonzero()[0].item<std::int64_t>());
  c10d::AllreduceOptions largest;
  largest.reduceOp = c10d::ReduceOp::MAX;
  group->allreduce(found, largest)->wait();
  auto place = found[0].item<std::int64_t>();
  if (place < 0)
    return std::nullopt;
  return replica_difference{
    place / stride, parameters[static_cast<std::size_t>(place % stride)].name};
}

} // namespace troupe::internal
