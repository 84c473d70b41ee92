#pragma once

#include <cstdint>
#include <optional>

#include "troupe/trainers/torch/data_parallel/data_parallel_options.hpp"

namespace troupe {

/// How an `epoch_loop` trains. Names are Lightning's. Equal on all ranks.
struct loop_options {
  int max_epochs = 1;

  /// Batches of an epoch, of this rank. Unset: all.
  std::optional<std::int64_t> limit_train_batches = {};
  /// The same of a validation; 0 turns validation off.
  std::optional<std::int64_t> limit_val_batches = {};

  /// Epochs from one validation to the next.
  int check_val_every_n_epoch = 1;

  /// Batches of validation before training, so that a mistake in it shows at
  /// once; what they log is dropped. -1: all. Not done when a run is resumed.
  std::int64_t num_sanity_val_steps = 2;

  /// Largest norm of all gradients together. Unset: they are left alone.
  std::optional<double> gradient_clip_val = {};

  /// Batches whose gradients are averaged for one step of the optimizer. The
  /// last step of an epoch may have fewer, each with the same weight.
  int accumulate_grad_batches = 1;

  /// Compares the weights of all ranks at the end of each epoch and ends the
  /// run if a bit differs: reads all of them once. Turn it off for ranks on
  /// processors of different kinds, whose kernels may round differently. Ranks
  /// with a `comm_hook` are not compared.
  bool check_replicas = true;

  /// Go on from `context.checkpoint()` if a loop saved it. Turn it off for all
  /// but the first of several loops in one run.
  bool resume = true;

  /// How the module is wrapped for several ranks.
  data_parallel_options data_parallel = {};
};

} // namespace troupe
