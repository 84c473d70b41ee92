#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"
#include "troupe/trainers/torch/loop/loop_callback.hpp"

namespace troupe {
class train_context;
}

namespace troupe::internal {

/// The state of LibTorch's default generators, of the CPU and of *device*, as
/// `cpu` and such as `cuda`.
tensor_map random_state(at::Device device);

/// Restores the state of the generators. One that *saved* lacks keeps its own
/// state.
void set_random_state(const tensor_map& saved, at::Device device);

/// What a checkpoint of an `epoch_loop` says beside the model's tensors:
/// `loop.json`, and `loop.safetensors` for tensors.
struct loop_progress {
  /// Which fit of the train function it was, from 0; -1: one inside another. A
  /// version that did not save it is taken for the first.
  int loop = 0;
  int finished_epochs = 0;
  std::int64_t global_step = 0;
  bool stopping = false; ///< Someone asked for the end after the last epoch.
  std::map<std::string, metrics> callbacks; ///< By `state_key`.
  loop_checkpoint added;                    ///< By hooks.
  tensor_map optimizer;
  /// See `loop_optimizer`. Empty: written by a version that did not save it.
  std::vector<double> first_lr = {};
  std::vector<double> own_lr = {};
  /// The fits before it that threw, in order. Empty, too: written by a version
  /// that did not save them.
  std::vector<int> failed = {};
};

/// What each rank saves for itself: `rank_<rank>.safetensors`.
struct rank_progress {
  tensor_map random; ///< See `random_state`.
  metrics logged;
  /// Parameters and buffers that are not those of rank 0, by name; and then the
  /// state of the optimizer, which has followed them. Empty for rank 0.
  tensor_map model;
  tensor_map optimizer;
};

/// Writes *x* into *folder*; throws `train_error` with the path.
void write_progress(const fs::path& folder, const loop_progress& x);

/// What *folder* holds; nothing if it is not a checkpoint of a loop. Throws
/// `train_error` for one that is damaged.
std::optional<loop_progress> read_progress(const fs::path& folder);

/// Where a fit resumes.
struct resume_point {
  std::string folder;   ///< Its newest checkpoint; empty: there is none.
  bool is_over = false; ///< A later fit has saved one, after this one's end.

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder, is_over);
  }
};

/// Where fit number *loop* of the train function resumes, before which those
/// of *failed* threw in this attempt: each from a checkpoint of its own,
/// whatever else was saved after it. Checkpoints that were saved after others
/// had failed do not count: their numbers may be those of other fits. A
/// collective; rank 0 looks. Throws as `read_progress`.
resume_point find_resume_point(train_context& context, int loop,
                               const std::vector<int>& failed);

void write_rank_progress(const fs::path& folder, int rank,
                         const rank_progress& x);

/// What *rank* wrote. A rank that did not exist then gets rank 0's logged
/// values and nothing else.
rank_progress read_rank_progress(const fs::path& folder, int rank);

} // namespace troupe::internal
