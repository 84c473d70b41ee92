#include "troupe/trainers/torch/files/object_formats.hpp"

#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe::internal {

namespace {

/// The name of a tensor that is saved alone.
constexpr auto only_tensor = "tensor";

} // namespace

void object_format<at::Tensor>::save(const fs::path& path,
                                     const at::Tensor& x) {
  save_safetensors(path, tensor_map{{only_tensor, x}});
}

restore_step object_format<at::Tensor>::read(const fs::path& path,
                                             at::Tensor& x) {
  auto saved = load_safetensors(path);
  auto found = saved.find(only_tensor);
  if (found == saved.end() || saved.size() != 1)
    throw_invalid_argument(path.string(), " does not hold one tensor");
  auto value = found->second;
  if (!x.defined())
    return {[&x, value] { x = value.clone(); }, {}};
  if (value.sizes() != x.sizes())
    throw_invalid_argument(path.string(), " holds a tensor of shape ",
                           value.sizes(), ", not ", x.sizes());
  return {[x, value] {
            const c10::NoGradGuard no_grad;
            x.copy_(value);
          },
          {}};
}

restore_step object_format<tensor_map>::read(const fs::path& path,
                                             tensor_map& x) {
  return {[&x, saved = load_safetensors(path)] {
            tensor_map result;
            for (auto& [name, tensor] : saved) {
              auto old = x.find(name);
              auto keeps = old != x.end() && old->second.defined();
              auto device = keeps ? old->second.device() : tensor.device();
              result.emplace(name, tensor.to(device, tensor.scalar_type(),
                                             false, /*copy=*/true));
            }
            x = std::move(result);
          },
          {}};
}

void save_archive(const fs::path& path, const archive_writer& write) {
  torch::serialize::OutputArchive archive;
  write(archive);
  archive.save_to(path.string());
}

restore_step read_archive_of(const fs::path& path,
                             std::optional<at::Device> device,
                             const archive_writer& write,
                             const archive_reader& read) {
  auto saved = std::make_shared<torch::serialize::InputArchive>();
  saved->load_from(path.string(), device);
  std::ostringstream before;
  torch::serialize::OutputArchive archive;
  write(archive);
  archive.save_to(before);
  return {[saved, read] { read(*saved); },
          [text = before.str(), read] {
            std::istringstream in{text};
            torch::serialize::InputArchive old;
            old.load_from(in);
            read(old);
          }};
}

} // namespace troupe::internal
