#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace c10d {
class CommHookInterface;
}

namespace troupe {

/// How gradients travel. Half precision halves the bytes on the wire; sums are
/// rounded on the way, so weights stay equal on all ranks but differ from those
/// of a run without compression.
enum class gradient_compression : std::uint8_t {
  none,
  fp16, ///< 11 bits of precision; gradients above 65,504 become infinite.
  bf16, ///< 8 bits of precision, the range of fp32.
};

/// How a model is trained data-parallel. All ranks must give the same values.
struct data_parallel_options {
  /// Largest bucket of gradients in bytes; also that of the first one. Without
  /// a value 25 MiB, and 1 MiB for the first, so that communication starts
  /// early.
  std::optional<std::int64_t> bucket_bytes;

  /// A size in bytes for each bucket, the last one for all that follow. Takes
  /// the place of `bucket_bytes`.
  std::vector<std::int64_t> bucket_bytes_list;

  /// Parameters and buffers are broadcast in pieces of this many bytes: large
  /// enough for full speed, small enough to bound the copy.
  std::int64_t broadcast_bytes = 250 * 1024 * 1024;

  /// Rank 0's weights and buffers replace those of the others at the start. Off
  /// only for models that are known to be equal.
  bool broadcast_at_start = true;

  /// Buffers (running means of batch norms) follow rank 0's before the first
  /// forward and the first one after each whose gradients are averaged: of a
  /// window of small batches before the first, and before an evaluation.
  bool sync_buffers = true;

  /// Searches the graph after each forward for parameters without a gradient.
  /// Costs time in every step; without it such a parameter is an error.
  bool find_unused_parameters = false;

  /// The same parameters are used in the same way in every step. Finds unused
  /// ones once, in the first step, and allows graphs that use a part twice. In
  /// a `join` every rank needs one batch at least.
  bool static_graph = false;

  /// Gradients share the memory of the buckets, which saves their size and a
  /// copy in each step. A gradient that is kept changes with the next
  /// backward.
  bool gradient_as_bucket_view = true;

  /// One copy and one division per bucket instead of one per parameter, where
  /// LibTorch has it: fewer launches. Without a value: on for accelerators,
  /// where a launch costs more than a pass over memory, off for CPUs.
  std::optional<bool> batched_grad_copy;

  /// Buckets are allocated when their gradients come and released after
  /// backward, where LibTorch has it: less memory, more time.
  bool lazy_bucket_allocation = false;

  /// Dotted names of parameters and buffers that stay local to this rank; of a
  /// shared one, its first name. A name that the model does not have is an
  /// error.
  std::vector<std::string> ignored;

  /// Compares the weights of all ranks once after the first step since a `join`
  /// of ranks with different numbers of steps. Turn it off for ranks on
  /// processors of different kinds, whose kernels may round differently. Ranks
  /// with a `comm_hook` are not compared.
  bool check_after_copy = true;

  gradient_compression compression = gradient_compression::none;

  /// Makes the hook that sums and divides the gradients of a bucket instead of
  /// the built-in all-reduce; called once at the start, and again if a static
  /// graph begins with gradients that are not averaged (`no_sync`), if other
  /// parameters are trained than before, or if they are of another type or on
  /// another device. Not beside a `compression`. A hook with two collectives
  /// calls, and where needed waits for, both in `runHook`: a callback of the
  /// first one's future must not wait for the second. On the `local` group
  /// `Work::wait` throws there.
  std::function<std::unique_ptr<c10d::CommHookInterface>(
    const c10::intrusive_ptr<c10d::ProcessGroup>&)>
    comm_hook;
};

/// How ranks with different numbers of batches train together.
struct join_options {
  /// Gradients are divided by the size of the group to the end, so that each
  /// sample weighs the same. Off: by the number of ranks that still have data,
  /// so that each step weighs the same; not with a `compression` or a
  /// `comm_hook`, which divide by the size of the group.
  bool divide_by_initial_world_size = true;
};

} // namespace troupe
