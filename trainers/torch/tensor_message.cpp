#include "troupe/trainers/torch/tensor_message.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/safe_numerics.h>

#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Those whose elements are plain numbers: no quantized ones.
bool is_number(c10::ScalarType x) {
  return x >= c10::ScalarType::Byte && x < c10::ScalarType::NumOptions
         && x != c10::ScalarType::Undefined && !c10::isQIntType(x)
         && c10::elementSize(x) > 0;
}

[[noreturn]] void refuse(const at::Tensor& x, const char* what) {
  throw_invalid_argument("a tensor of ", c10::toString(x.scalar_type()), ' ',
                         x.sizes(), ' ', what,
                         ": send x.cpu().contiguous(), a dense one");
}

} // namespace

tensor_message to_message(const at::Tensor& x) {
  if (!x.defined())
    throw_invalid_argument("an undefined tensor cannot be sent");
  if (x.layout() != at::kStrided || !is_number(x.scalar_type()))
    refuse(x, "that is sparse or quantized cannot be sent");
  if (!x.is_cpu())
    refuse(x, "that is on another device cannot be sent");
  if (!x.is_contiguous() || x.is_conj() || x.is_neg())
    refuse(x, "that is not contiguous cannot be sent");
  auto first = static_cast<const std::byte*>(x.const_data_ptr());
  return {static_cast<std::uint8_t>(x.scalar_type()), x.sizes().vec(),
          shared_bytes::copy_of({first, x.nbytes()})};
}

at::Tensor to_tensor(const tensor_message& x) {
  auto type = static_cast<c10::ScalarType>(x.type);
  if (!is_number(type))
    throw_invalid_argument("a message has no tensor: ", int{x.type},
                           " is not a type of elements");
  std::uint64_t size = c10::elementSize(type);
  for (auto n : x.sizes)
    if (n < 0 || c10::mul_overflows(size, static_cast<std::uint64_t>(n), &size))
      throw_invalid_argument("a message has no tensor: its shape is ",
                             c10::IntArrayRef{x.sizes});
  if (size != x.elements.size())
    throw_invalid_argument("a message has no tensor: ", x.elements.size(),
                           " bytes for ", c10::toString(type), ' ',
                           c10::IntArrayRef{x.sizes}, ", which has ", size);
  auto options = at::TensorOptions{}.dtype(type);
  if (size == 0)
    return at::empty(x.sizes, options);
  // What is written there nevertheless stays in this process.
  auto first = const_cast<std::byte*>(x.elements.data());
  return at::from_blob(
    first, x.sizes, [kept = x.elements](void*) {}, options);
}

} // namespace troupe
