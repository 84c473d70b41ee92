#include "troupe/trainers/torch/files/pt.hpp"

#include <bit>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Dict.h>
#include <c10/core/GradMode.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/files/whole_file.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

namespace {

/// *x* as dense memory of this host, in a storage of exactly its size: a
/// storage is written whole.
at::Tensor own_storage(const at::Tensor& x) {
  auto dense = x.layout() == at::kStrided ? x.detach() : x.detach().to_dense();
  auto host = dense.cpu().resolve_conj().resolve_neg().contiguous();
  return host.storage().nbytes() == host.nbytes() ? host : host.clone();
}

/// Pickles *tensors* as a plain dict. The tensors' bytes are to be written as
/// the records data/0, data/1, ... in the order of *written*.
std::string pickled(const tensor_map& tensors,
                    std::vector<at::Tensor>& written) {
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& [name, tensor] : tensors)
    dict.insert(name, own_storage(tensor));
  std::string result;
  torch::jit::Pickler pickler{
    [&](const char* data, std::size_t n) { result.append(data, n); }, nullptr,
    nullptr, nullptr, nullptr,
    // Type tags are calls that weights_only refuses.
    /*tag_aggregates=*/false};
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  written = pickler.tensorData();
  return result;
}

void write_archive(const fs::path& path, const tensor_map& tensors) {
  const c10::NoGradGuard no_grad;
  auto file = value_or_throw(replacing_file::create(path));
  error problem;
  caffe2::serialize::PyTorchStreamWriter archive{
    [&](const void* data, std::size_t n) -> std::size_t {
      auto done = file.write({{static_cast<const std::byte*>(data), n}});
      if (done)
        return n;
      problem = done.error();
      return 0;
    }};
  try {
    std::vector<at::Tensor> written;
    auto pickle = pickled(tensors, written);
    for (std::size_t i = 0; i < written.size(); ++i)
      archive.writeRecord(concat("data/", i), written[i].storage().data(),
                          written[i].storage().nbytes());
    archive.writeRecord("data.pkl", pickle.data(), pickle.size());
    const std::string order =
      std::endian::native == std::endian::little ? "little" : "big";
    archive.writeRecord("byteorder", order.data(), order.size());
    archive.writeEndOfFile();
  } catch (const std::exception& x) {
    if (problem)
      throw train_error{std::move(problem)};
    throw train_error{
      {ec::unsupported, path.string() + " cannot be written: " + x.what()}};
  }
  value_or_throw(file.commit());
}

} // namespace

void save_pt(const fs::path& path, const tensor_map& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (!tensor.defined())
      throw train_error{
        {ec::invalid_argument, "tensor '" + name + "' is undefined"}};
  write_archive(path, tensors);
}

tensor_map load_pt(const fs::path& path, trusted_source) {
  auto file = value_or_throw(mapped_file::open(path));
  auto damaged = [&](const std::string& why) {
    return train_error{{ec::corrupt, path.string()
                                       + " is not a .pt file with a "
                                         "dict of tensors: "
                                       + why}};
  };
  auto bytes = file->bytes();
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  c10::IValue value;
  try {
    value = torch::jit::pickle_load({begin, begin + bytes.size()});
  } catch (const std::exception& x) {
    const std::string what = x.what();
    throw damaged(what.substr(0, what.find('\n')));
  }
  if (!value.isGenericDict())
    throw damaged("it holds a " + value.tagKind());
  tensor_map result;
  for (const auto& item : value.toGenericDict()) {
    if (!item.key().isString() || !item.value().isTensor())
      throw damaged("an entry is not a pair of name and tensor");
    result.insert_or_assign(item.key().toStringRef(), item.value().toTensor());
  }
  return result;
}

} // namespace troupe
