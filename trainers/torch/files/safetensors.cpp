#include "troupe/trainers/torch/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/files/safetensors_header.hpp"
#include "troupe/trainers/torch/files/whole_file.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

namespace {

using c10::ScalarType;

constexpr std::array<std::pair<ScalarType, const char*>, 18> type_names{
  {{ScalarType::Bool, "BOOL"},
   {ScalarType::Byte, "U8"},
   {ScalarType::Char, "I8"},
   {ScalarType::Short, "I16"},
   {ScalarType::UInt16, "U16"},
   {ScalarType::Int, "I32"},
   {ScalarType::UInt32, "U32"},
   {ScalarType::Long, "I64"},
   {ScalarType::UInt64, "U64"},
   {ScalarType::Half, "F16"},
   {ScalarType::BFloat16, "BF16"},
   {ScalarType::Float, "F32"},
   {ScalarType::Double, "F64"},
   {ScalarType::Float8_e5m2, "F8_E5M2"},
   {ScalarType::Float8_e4m3fn, "F8_E4M3"},
   {ScalarType::Float8_e8m0fnu, "F8_E8M0"},
   {ScalarType::Float8_e5m2fnuz, "F8_E5M2FNUZ"},
   {ScalarType::Float8_e4m3fnuz, "F8_E4M3FNUZ"}}};

/// How the safetensors format spells *type*; nothing for a type that it lacks.
std::optional<std::string> safetensors_name(ScalarType type) {
  for (const auto& [known, name] : type_names)
    if (known == type)
      return name;
  return std::nullopt;
}

/// The inverse of `safetensors_name`.
std::optional<ScalarType> scalar_type(const std::string& name) {
  for (const auto& [type, known] : type_names)
    if (known == name)
      return type;
  return std::nullopt;
}

/// A file whose header has been checked.
struct opened_file {
  std::shared_ptr<mapped_file> file;
  safetensors_header header;
};

opened_file open(const fs::path& path) {
  auto file = value_or_throw(mapped_file::open(path));
  auto header = safetensors_header::decode(file->bytes());
  if (!header)
    throw train_error{{header.error().code, path.string() + " is damaged: "
                                              + header.error().message}};
  return {std::move(file), std::move(*header)};
}

/// *x* as dense memory of this host.
at::Tensor to_host(const std::string& name, const at::Tensor& x) {
  if (!x.defined())
    throw train_error{
      {ec::invalid_argument, "tensor '" + name + "' is undefined"}};
  auto dense = x.layout() == at::kStrided ? x.detach() : x.detach().to_dense();
  return dense.cpu().resolve_conj().resolve_neg().contiguous();
}

std::span<const std::byte> bytes_in(const at::Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
}

/// The tensor at *data*, which *file* keeps alive.
at::Tensor view(const std::shared_ptr<mapped_file>& file, std::byte* data,
                const safetensors_header::entry& x) {
  auto type = *scalar_type(x.dtype);
  auto options = at::TensorOptions{}.dtype(type);
  if (x.begin == x.end)
    return at::empty(x.shape, options);
  auto unit = safetensors_header::element_size(x.dtype);
  if (reinterpret_cast<std::uintptr_t>(data) % unit == 0)
    return at::from_blob(
      data, x.shape, [file](void*) {}, options);
  // Files of other writers need not be aligned.
  auto copy = at::empty(x.shape, options);
  std::memcpy(copy.mutable_data_ptr(), data, x.end - x.begin);
  return copy;
}

} // namespace

void save_safetensors(const fs::path& path, const tensor_map& tensors,
                      const file_metadata& metadata) {
  const c10::NoGradGuard no_grad;
  std::vector<std::pair<safetensors_header::entry, at::Tensor>> items;
  for (const auto& [name, tensor] : tensors) {
    auto host = to_host(name, tensor);
    auto dtype = safetensors_name(host.scalar_type());
    if (!dtype)
      throw train_error{
        {ec::unsupported, concat("tensor '", name, "' has the data type ",
                                 c10::toString(host.scalar_type()),
                                 ", which safetensors does not know")}};
    if (name == "__metadata__")
      throw train_error{{ec::invalid_argument,
                         "no tensor can be called __metadata__ in a "
                         "safetensors file"}};
    items.push_back({{name, *dtype, host.sizes().vec()}, std::move(host)});
  }
  // Wide elements first, so that all are aligned when the file is mapped.
  std::ranges::stable_sort(items, std::greater{}, [](const auto& x) {
    return x.second.element_size();
  });
  safetensors_header header{{}, metadata};
  std::uint64_t offset = 0;
  for (auto& [entry, tensor] : items) {
    entry.begin = offset;
    entry.end = offset += tensor.nbytes();
    header.entries.push_back(entry);
  }
  std::string head;
  try {
    head = header.encode();
  } catch (const std::exception& x) {
    throw train_error{
      {ec::invalid_argument, path.string()
                               + " cannot be written: a name or its "
                                 "metadata is not UTF-8 text"}};
  }
  std::vector<std::span<const std::byte>> pieces{
    std::as_bytes(std::span{head})};
  for (const auto& item : items)
    pieces.push_back(bytes_in(item.second));
  auto file = value_or_throw(replacing_file::create(path));
  value_or_throw(file.write(pieces));
  value_or_throw(file.commit());
}

tensor_map load_safetensors(const fs::path& path) {
  auto [file, header] = open(path);
  auto* data =
    file->bytes().data() + safetensors_header::data_offset(file->bytes());
  tensor_map result;
  for (const auto& entry : header.entries)
    result.emplace(entry.name, view(file, data + entry.begin, entry));
  return result;
}

file_metadata load_safetensors_metadata(const fs::path& path) {
  return open(path).header.metadata;
}

} // namespace troupe
