#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace troupe {
class train_context;
} // namespace troupe

namespace troupe::internal {

/// Whether this build has Gloo.
bool has_gloo() noexcept;

/// The member of a group that *make* returns. What it throws, other than a
/// `train_error`, becomes `ec::rank_failed`: "rank 1: <problem>: <its text>".
c10::intrusive_ptr<c10d::Backend>
make_member(int rank, const char* problem,
            const std::function<c10::intrusive_ptr<c10d::Backend>()>& make);

/// The address of the ranks of one host, for each other.
inline constexpr const char* loopback_address = "127.0.0.1";

/// Gloo between *size* ranks that meet at *store*; the others reach this one at
/// *address*, a number. Throws `train_error`: `ec::unsupported` in a build
/// without Gloo, `ec::invalid_config` if this host does not have *address*, and
/// what the store says.
c10::intrusive_ptr<c10d::Backend>
make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, const std::string& address,
                std::chrono::milliseconds timeout);

/// Loads the CUDA part of LibTorch, so that tensors can be on GPUs. Throws
/// `train_error` with `ec::unsupported` if it or a GPU is missing.
void load_cuda(int rank);

/// NCCL between *size* ranks on *device*, a GPU, through the `troupe_nccl`
/// library. Throws `train_error`: `ec::unsupported` names what is missing.
c10::intrusive_ptr<c10d::Backend>
make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, c10::Device device,
                std::chrono::milliseconds timeout);

/// Returns what *start* returns, such as a group whose start waits for peers
/// and cannot be interrupted: it runs on a thread of its own. Throws
/// `train_error` as soon as the attempt is aborted, and after *limit*; *start*
/// is then abandoned, and its result is released. Replaces another listener to
/// aborts.
c10::intrusive_ptr<c10d::Backend>
start_group(train_context& context, std::chrono::milliseconds limit,
            std::function<c10::intrusive_ptr<c10d::Backend>()> start);

/// While the result is kept, reports and checkpoints of *context* are refused
/// with `train_error` once *member* has aborted a collective: NCCL's waits only
/// order streams, so the loop continues with whatever was in memory. Each waits
/// for all work that the loop has started on *device*, which may still fail.
[[nodiscard]] std::shared_ptr<void>
refuse_reports_after_abort(train_context& context,
                           c10::intrusive_ptr<c10d::Backend> member,
                           c10::Device device);

/// Aborts *member* on a separate thread and returns at once: the abort waits
/// for the GPU, and the control plane must not wait.
void abort_nccl_group(c10::intrusive_ptr<c10d::Backend> member);

/// How long collectives that a loop has started may take on the GPU after the
/// loop returned: 30 s. They are then aborted, in a peer that joins them later,
/// too; a report at the end of the loop waits for all without this limit. 1 s
/// while an exception leaves the loop: peers that wait for this rank keep the
/// communicator open, and learn of the exception only after this.
std::chrono::milliseconds nccl_drain_limit() noexcept;

/// Ends *member* in order: pending work on *device* finishes, then the
/// communicators close. Destroying or aborting first could corrupt the last
/// results, here and in the peers. After *limit* the rest is aborted, within
/// another second.
void close_nccl_group(c10::intrusive_ptr<c10d::Backend> member,
                      c10::Device device,
                      std::chrono::milliseconds limit = nccl_drain_limit());

/// Destroys groups on separate threads. The destructor of a Gloo group waits
/// for threads that may be in a collective until their peers close their
/// connections or a timeout passes; nothing else should wait for that.
class group_reaper {
public:
  /// Most groups that may be pending at a time. More means that attempts end
  /// faster than the network notices.
  static constexpr int limit = 16;

  /// Takes over *group*. The caller holds no other reference. If the system has
  /// no thread left, the group keeps its memory and connections.
  static void dispose(c10::intrusive_ptr<c10d::Backend> group);

  /// How many groups are still pending.
  static int pending();

  /// Waits up to *limit* for all of them. Returns whether none is left.
  static bool drain(std::chrono::milliseconds limit);
};

} // namespace troupe::internal
