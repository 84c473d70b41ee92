#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/process/rank_activity.hpp"
#include "troupe/trainers/torch/groups/group_work.hpp"

namespace troupe::internal {

/// A group around another one that cannot be woken from outside (Gloo):
/// callers wait for works of our own, which the inner ones complete or an abort
/// fails.
///
/// Threads of the inner group may continue for a while after an abort; they
/// hold references to their tensors, so nothing is overwritten.
class abortable_group : public c10d::Backend, public showing_group {
public:
  /// Records in *activity* what this rank waits for, until the group is closed.
  abortable_group(c10::intrusive_ptr<c10d::Backend> inner,
                  std::shared_ptr<rank_activity> activity);

  /// Gives the inner group to the reaper.
  ~abortable_group() override;

  /// Fails all open and later collectives with *reason*; the open ones show
  /// *how*. Any thread may call it; never waits for peers. The first reason
  /// stays.
  void abort(const error& reason,
             collective_failure how = collective_failure::others);
  /// The rank itself ends its part: no other rank is to blame.
  void abort() override;
  void shutdown() override;

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override;

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
  class work;
  class call_of_inner;

  /// Starts a collective of the inner group with *start*.
  work_ptr forward(c10d::OpType type, std::vector<tensors> outputs,
                   const std::function<work_ptr(c10d::Backend&)>& start);

  /// Fails *started* if an abort came before it was known.
  void fail_if_aborted(work& started);

  const owner_process owner_;
  const std::string name_;
  mutable std::mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> inner_;
  error aborted_;
  collective_failure aborted_as_ = collective_failure::none;
  std::uint64_t calls_ = 0;
  struct open_works;
  std::shared_ptr<open_works> open_;
};

} // namespace troupe::internal
