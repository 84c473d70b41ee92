#pragma once

#include "troupe/runtime/fs.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// The caller trusts the file: reading it may run arbitrary code of its author.
struct trusted_source {};

/// Writes *tensors* to *path* as a dict that Python's `torch.load(path,
/// weights_only=True)` reads; an older file is replaced at the end, by rename.
/// Prefer safetensors unless Python reads the file. Throws `train_error` with
/// the path.
void save_pt(const fs::path& path, const tensor_map& tensors);

/// Writes the parameters and buffers of *model* (see `named_tensors`).
template <internal::model_reference Model>
void save_pt(const fs::path& path, Model&& model) {
  save_pt(path, named_tensors(model));
}

/// The tensors of a `.pt` file with a plain dict from names to tensors, as
/// `save_pt` or Python's `torch.save(dict(model.state_dict()), path)` write it.
/// Throws `train_error` for anything else.
tensor_map load_pt(const fs::path& path, trusted_source);

} // namespace troupe
