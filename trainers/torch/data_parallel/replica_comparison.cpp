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
  auto bits = x.detach();
  if (!bits.is_non_overlapping_and_dense())
    bits = bits.contiguous();
  if (bits.is_cpu())
    return at::scalar_tensor(
      static_cast<std::int64_t>(checksum(
        {static_cast<const char*>(bits.const_data_ptr()), bits.nbytes()})),
      at::kLong);
  return sum_by_place(bits);
}

std::vector<at::Tensor> one_number(std::int64_t value, at::Device device) {
  return {at::full({1}, value, at::TensorOptions{at::kLong}.device(device))};
}

} // namespace

at::Tensor sum_by_place(const at::Tensor& x) {
  constexpr at::ScalarType integers[]{at::kChar, at::kShort, at::kInt,
                                      at::kLong};
  auto bits = x.is_complex() ? at::view_as_real(x) : x;
  auto type = integers[std::countr_zero(bits.dtype().itemsize())];
  auto flat = bits.view(type).flatten();
  // The sign of a double is the highest bit, which alone would be lost: weights
  // of two elements differ by an even number.
  if (type == at::kLong)
    flat = flat + at::bitwise_right_shift(flat, 32);
  // In rows and columns, so that only their sums need memory; what fills no row
  // is a row, too.
  constexpr std::int64_t width = 1024;
  auto rows = flat.numel() / width;
  auto table = flat.narrow(0, 0, rows * width).view({rows, width});
  auto rest = flat.narrow(0, rows * width, flat.numel() - rows * width);
  auto of_columns = table.sum(0, false, at::kLong);
  of_columns.narrow(0, 0, rest.numel()).add_(rest);
  auto of_rows =
    at::cat({table.sum(1, false, at::kLong), rest.sum(at::kLong).view({1})});
  auto numbers = [](const at::Tensor& sums) {
    return at::arange(sums.numel(), sums.options());
  };
  // An element counts 2 * row + 1 + factor * column times, which is odd.
  constexpr std::int64_t factor = 0x3c6ef372fe94f82a;
  return (of_rows * (numbers(of_rows) * 2 + 1)).sum()
         + (of_columns * (numbers(of_columns) * factor)).sum();
}

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
