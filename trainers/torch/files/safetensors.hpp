#pragma once

#include <map>
#include <string>

#include "troupe/runtime/fs.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// Free text beside the tensors of a safetensors file.
using file_metadata = std::map<std::string, std::string>;

/// Writes *tensors* to *path* in the safetensors format; an older file is
/// replaced at the end, by rename. Tensors on other devices or with other
/// layouts are copied to dense memory first; tensors that share memory are each
/// written in full. Throws `train_error` with the path, or the name of a tensor
/// whose data type the format lacks.
void save_safetensors(const fs::path& path, const tensor_map& tensors,
                      const file_metadata& metadata = {});

/// Writes the parameters and buffers of *model* (see `named_tensors`).
template <internal::model_reference Model>
void save_safetensors(const fs::path& path, Model&& model,
                      const file_metadata& metadata = {}) {
  save_safetensors(path, named_tensors(model), metadata);
}

/// All tensors of *path*. They are private views of the mapped file: writing to
/// one changes no file. The file must not be changed in place while they exist.
/// Throws `train_error` that says what is wrong with the file.
tensor_map load_safetensors(const fs::path& path);

/// Reads no tensor; throws as above.
file_metadata load_safetensors_metadata(const fs::path& path);

/// Copies the tensors of *path* into the parameters and buffers of *model*.
/// Throws as above and as `load_tensors` does.
template <internal::model_reference Model>
void load_safetensors(const fs::path& path, Model&& model,
                      const load_options& options = {}) {
  load_tensors(load_safetensors(path), model, options);
}

} // namespace troupe
