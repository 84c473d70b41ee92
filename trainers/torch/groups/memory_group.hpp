#pragma once

#include <functional>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/trainers/torch/groups/group_work.hpp"
#include "troupe/trainers/torch/groups/tensor_collectives.hpp"

namespace troupe::internal {

/// A process group of CPU tensors over memory that ranks share, on one host or
/// on each of several.
///
/// Collectives run one by one on a thread of the group, in the order of the
/// calls, so that a backward pass continues meanwhile. Results are
/// bit-identical on every rank. Each call takes one tensor (the list forms one
/// per rank) of any strides; sparse tensors are summed or averaged. A failure
/// fails the returned work with a `train_error` that names ranks, and all later
/// calls.
///
/// Classes that derive from this one call `close` in their destructors.
class memory_group : public c10d::Backend, public showing_group {
public:
  /// Collectives go to *collectives*, which belong to the derived class.
  memory_group(const std::string& name, memory_collectives& collectives,
               std::chrono::milliseconds timeout,
               const std::shared_ptr<rank_activity>& activity);

  /// Fails all open and later collectives of all ranks at once, with *reason*.
  /// Any thread may call it; never blocks.
  void abort(const error& reason) noexcept;
  void abort() override;

  /// Fails open collectives of this rank and ends the group's thread. The other
  /// ranks fail as soon as they need this one again.
  void close();
  void shutdown() override { close(); }

  const std::string getBackendName() const override {
    return options_->backend;
  }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override { return calls_; }

  using tensors = std::vector<at::Tensor>;
  using work_ptr = c10::intrusive_ptr<c10d::Work>;

  work_ptr allreduce(tensors& x,
                     const c10d::AllreduceOptions& options) override;
  work_ptr allreduce_sparse(tensors& x,
                            const c10d::AllreduceOptions& options) override;
  work_ptr
  allreduce_coalesced(tensors& x,
                      const c10d::AllreduceCoalescedOptions& options) override;
  work_ptr reduce(tensors& x, const c10d::ReduceOptions& options) override;
  work_ptr broadcast(tensors& x,
                     const c10d::BroadcastOptions& options) override;
  work_ptr allgather(std::vector<tensors>& outputs, tensors& inputs,
                     const c10d::AllgatherOptions& options) override;
  work_ptr gather(std::vector<tensors>& outputs, tensors& inputs,
                  const c10d::GatherOptions& options) override;
  work_ptr scatter(tensors& outputs, std::vector<tensors>& inputs,
                   const c10d::ScatterOptions& options) override;
  work_ptr reduce_scatter(tensors& outputs, std::vector<tensors>& inputs,
                          const c10d::ReduceScatterOptions& options) override;
  work_ptr barrier(const c10d::BarrierOptions& options) override;

  // The single-tensor forms under the names that every version of c10d knows;
  // newer ones forward their new names to them.
  work_ptr _allgather_base(at::Tensor& output, at::Tensor& input,
                           const c10d::AllgatherOptions& options) override;
  work_ptr allgather_into_tensor_coalesced(
    tensors& outputs, tensors& inputs,
    const c10d::AllgatherOptions& options) override;
  work_ptr
  _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                       const c10d::ReduceScatterOptions& options) override;
  work_ptr reduce_scatter_tensor_coalesced(
    tensors& outputs, tensors& inputs,
    const c10d::ReduceScatterOptions& options) override;

private:
  using clock_limit = std::chrono::milliseconds;

  /// Runs *f* on the group's thread; its exceptions fail the work.
  work_ptr enqueue(c10d::OpType type, std::vector<tensors> outputs,
                   clock_limit timeout, std::function<void(clock_limit)> f);

  owner_process owner_;
  memory_collectives& memory_;
  tensor_collectives collectives_;
  c10::intrusive_ptr<Options> options_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<bool> leaves_ = false; ///< By itself: no other rank is to blame.
  ordered_worker worker_;            // Last: its tasks use all of the above.
};

} // namespace troupe::internal
