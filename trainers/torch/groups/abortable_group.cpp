#include "troupe/trainers/torch/groups/abortable_group.hpp"

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <c10/util/StringUtil.h>

#include "troupe/runtime/process/threads.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

/// The future of *x*; nullptr if it has none (Gloo's reduce-scatter).
c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work& x) {
  try {
    return x.getFuture();
  } catch (const c10::Error&) {
    return nullptr;
  }
}

/// The error for ranks that were missing at a timeout, if *failure* is one:
/// Gloo reports it only as text.
std::exception_ptr as_timeout(const std::exception_ptr& failure, int rank) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    std::string_view what = e.what();
    if (what.find("Timed out") == what.npos
        && what.find("timeout") == what.npos)
      return nullptr;
    return std::make_exception_ptr(train_error{
      {ec::timeout, c10::str("rank ", rank,
                             ": a collective waited too long for other ranks: ",
                             e.what())}});
  } catch (...) {
    return nullptr;
  }
}

/// Calls *complete* once *inner* is over, as threads of the inner group do for
/// works that have a future.
expected<void>
wait_on_a_thread(c10::intrusive_ptr<c10d::Work> inner,
                 std::function<void(std::exception_ptr)> complete) {
  return start_detached_thread(
    [inner = std::move(inner), complete = std::move(complete)] {
      try {
        inner->wait();
      } catch (...) {
        return complete(std::current_exception());
      }
      complete(nullptr);
    });
}

/// Whether *failure* is a broken connection to another rank, which Gloo also
/// reports only as text.
bool is_broken_connection(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    std::string_view what = e.what();
    return what.find("onnection") != what.npos
           || what.find("Broken pipe") != what.npos;
  } catch (...) {
    return false;
  }
}

} // namespace

/// Completed by the inner work or by an abort, whichever is first.
class abortable_group::work : public group_work {
public:
  using group_work::group_work;

  /// For CUDA tensors the inner group orders streams here.
  void synchronize() override {
    if (inner)
      inner->synchronize();
  }

  work_ptr inner;
};

/// Works that are not completed yet. Callbacks of inner futures outlive the
/// group, so they share it.
struct abortable_group::open_works {
  std::mutex mutex;
  std::unordered_set<work*> works;         // Each holds a reference of ours.
  std::shared_ptr<rank_activity> activity; // Until the group is closed.

  void add(const c10::intrusive_ptr<work>& x) {
    std::lock_guard guard{mutex};
    works.insert(c10::intrusive_ptr<work>{x}.release());
    if (activity)
      activity->enter_collective();
  }

  /// Notes that other ranks were missing at a timeout.
  void give_up() {
    std::lock_guard guard{mutex};
    if (activity)
      activity->give_up_collective();
  }

  /// Our reference to *x*; nullptr if another thread took it.
  c10::intrusive_ptr<work> take(work* x) {
    std::lock_guard guard{mutex};
    if (works.erase(x) == 0)
      return nullptr;
    if (activity && works.empty())
      activity->leave_collective();
    return c10::intrusive_ptr<work>::reclaim(x);
  }

  std::vector<c10::intrusive_ptr<work>> take_all() {
    std::lock_guard guard{mutex};
    if (auto mine = std::exchange(activity, nullptr))
      mine->leave_collective();
    std::vector<c10::intrusive_ptr<work>> all;
    for (auto* x : std::exchange(works, {}))
      all.push_back(c10::intrusive_ptr<work>::reclaim(x));
    return all;
  }
};

abortable_group::abortable_group(c10::intrusive_ptr<c10d::Backend> inner,
                                 std::shared_ptr<rank_activity> activity)
  : Backend(inner->getRank(), inner->getSize()), showing_group(activity),
    name_(inner->getBackendName()), inner_(std::move(inner)),
    open_(std::make_shared<open_works>()) {
  open_->activity = std::move(activity);
  init();
}

abortable_group::~abortable_group() {
  abort({ec::stopped, "the group was closed"}, collective_failure::own);
}

void abortable_group::abort(const error& reason, collective_failure how) {
  c10::intrusive_ptr<c10d::Backend> gone;
  {
    std::lock_guard guard{mutex_};
    if (!aborted_) {
      aborted_ = {
        reason.code,
        c10::str("rank ", rank_, ": the group was aborted: ", reason.message)};
      aborted_as_ = how;
    }
    gone = std::exchange(inner_, nullptr);
  }
  auto failure = std::make_exception_ptr(train_error{aborted_});
  for (auto& x : open_->take_all())
    x->fail(failure, aborted_as_);
  group_reaper::dispose(std::move(gone));
}

void abortable_group::abort() {
  abort({ec::stopped, "on request of this rank"}, collective_failure::own);
}

void abortable_group::shutdown() {
  abort({ec::stopped, "the group was shut down"}, collective_failure::own);
}

/// The inner group during a call; throws the reason of the abort if it was
/// released. An abort meanwhile may leave the last reference here: then the
/// reaper gets it.
class abortable_group::call_of_inner {
public:
  explicit call_of_inner(abortable_group& self) : self_(self) {
    std::lock_guard guard{self.mutex_};
    if (!self.inner_)
      throw train_error{self.aborted_};
    inner_ = self.inner_;
  }

  ~call_of_inner() {
    {
      std::lock_guard guard{self_.mutex_};
      if (self_.inner_) {
        inner_.reset(); // Not the last one as long as this is locked.
        return;
      }
    }
    group_reaper::dispose(std::move(inner_));
  }

  call_of_inner(const call_of_inner&) = delete;
  call_of_inner& operator=(const call_of_inner&) = delete;

  c10d::Backend* operator->() const noexcept { return inner_.get(); }
  c10d::Backend& operator*() const noexcept { return *inner_; }

private:
  abortable_group& self_;
  c10::intrusive_ptr<c10d::Backend> inner_;
};

c10::intrusive_ptr<c10d::Backend::Options>
abortable_group::getBackendOptions() {
  const call_of_inner group{*this};
  return group->getBackendOptions();
}

void abortable_group::setTimeout(std::chrono::milliseconds timeout) {
  const call_of_inner group{*this};
  group->setTimeout(timeout);
}

std::uint64_t abortable_group::getSequenceNumberForGroup() {
  const call_of_inner group{*this};
  return group->getSequenceNumberForGroup();
}

abortable_group::work_ptr
abortable_group::forward(c10d::OpType type, std::vector<tensors> outputs,
                         const std::function<work_ptr(c10d::Backend&)>& start) {
  if (!owner_.is_here())
    throw train_error{
      {ec::invalid_argument,
       c10::str("the group of rank ", rank_,
                " was called in a process that the train loop forked")}};
  const call_of_inner group{*this};
  auto ours = c10::make_intrusive<work>(rank_, type, std::move(outputs),
                                        calls_++, c10d::kUnsetTimeout, shown(),
                                        needs_all_ranks(type));
  open_->add(ours);
  try {
    ours->inner = start(*group);
  } catch (...) {
    shown()->lose_count();
    open_->take(ours.get());
    throw;
  }
  auto complete = [open = open_, key = ours.get(),
                   rank = rank_](std::exception_ptr failure) {
    auto timeout = failure ? as_timeout(failure, rank) : nullptr;
    if (timeout)
      open->give_up();
    auto mine = open->take(key);
    if (!mine)
      return;
    if (!failure)
      mine->succeed();
    else if (timeout)
      mine->fail(timeout, collective_failure::own);
    else
      mine->fail(failure, is_broken_connection(failure)
                            ? collective_failure::others
                            : collective_failure::own);
  };
  if (auto future = future_of(*ours->inner))
    future->addCallback([complete](c10::ivalue::Future& done) {
      complete(done.hasError() ? done.exception_ptr() : nullptr);
    });
  else if (auto waits = wait_on_a_thread(ours->inner, complete); !waits)
    complete(std::make_exception_ptr(train_error{
      {waits.error().code,
       c10::str("rank ", rank_,
                ": cannot wait for a collective: ", waits.error().message)}}));
  fail_if_aborted(*ours);
  return ours;
}

void abortable_group::fail_if_aborted(work& started) {
  {
    std::lock_guard guard{mutex_};
    if (inner_)
      return;
  }
  if (auto mine = open_->take(&started))
    mine->fail(std::make_exception_ptr(train_error{aborted_}), aborted_as_);
}

abortable_group::work_ptr
abortable_group::allreduce(tensors& x, const c10d::AllreduceOptions& options) {
  return forward(c10d::OpType::ALLREDUCE, {x},
                 [&](auto& group) { return group.allreduce(x, options); });
}

abortable_group::work_ptr
abortable_group::allreduce_sparse(tensors& x,
                                  const c10d::AllreduceOptions& options) {
  return forward(c10d::OpType::_ALLREDUCE_SPARSE, {x}, [&](auto& group) {
    return group.allreduce_sparse(x, options);
  });
}

abortable_group::work_ptr abortable_group::allreduce_coalesced(
  tensors& x, const c10d::AllreduceCoalescedOptions& options) {
  return forward(c10d::OpType::ALLREDUCE_COALESCED, {x}, [&](auto& group) {
    return group.allreduce_coalesced(x, options);
  });
}

abortable_group::work_ptr
abortable_group::reduce(tensors& x, const c10d::ReduceOptions& options) {
  return forward(c10d::OpType::REDUCE, {x},
                 [&](auto& group) { return group.reduce(x, options); });
}

abortable_group::work_ptr
abortable_group::broadcast(tensors& x, const c10d::BroadcastOptions& options) {
  return forward(c10d::OpType::BROADCAST, {x},
                 [&](auto& group) { return group.broadcast(x, options); });
}

abortable_group::work_ptr
abortable_group::allgather(std::vector<tensors>& outputs, tensors& inputs,
                           const c10d::AllgatherOptions& options) {
  return forward(c10d::OpType::ALLGATHER, outputs, [&](auto& group) {
    return group.allgather(outputs, inputs, options);
  });
}

abortable_group::work_ptr
abortable_group::gather(std::vector<tensors>& outputs, tensors& inputs,
                        const c10d::GatherOptions& options) {
  return forward(c10d::OpType::GATHER, outputs, [&](auto& group) {
    return group.gather(outputs, inputs, options);
  });
}

abortable_group::work_ptr
abortable_group::scatter(tensors& outputs, std::vector<tensors>& inputs,
                         const c10d::ScatterOptions& options) {
  return forward(c10d::OpType::SCATTER, {outputs}, [&](auto& group) {
    return group.scatter(outputs, inputs, options);
  });
}

abortable_group::work_ptr
abortable_group::reduce_scatter(tensors& outputs, std::vector<tensors>& inputs,
                                const c10d::ReduceScatterOptions& options) {
  return forward(c10d::OpType::REDUCE_SCATTER, {outputs}, [&](auto& group) {
    return group.reduce_scatter(outputs, inputs, options);
  });
}

abortable_group::work_ptr
abortable_group::barrier(const c10d::BarrierOptions& options) {
  return forward(c10d::OpType::BARRIER, {},
                 [&](auto& group) { return group.barrier(options); });
}

abortable_group::work_ptr
abortable_group::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  return forward(c10d::OpType::_ALLGATHER_BASE, {{output}}, [&](auto& group) {
    return group._allgather_base(output, input, options);
  });
}

abortable_group::work_ptr abortable_group::allgather_into_tensor_coalesced(
  tensors& outputs, tensors& inputs, const c10d::AllgatherOptions& options) {
  return forward(
    c10d::OpType::ALLGATHER_COALESCED, {outputs}, [&](auto& group) {
      return group.allgather_into_tensor_coalesced(outputs, inputs, options);
    });
}

abortable_group::work_ptr abortable_group::_reduce_scatter_base(
  at::Tensor& output, at::Tensor& input,
  const c10d::ReduceScatterOptions& options) {
  return forward(c10d::OpType::_REDUCE_SCATTER_BASE, {{output}},
                 [&](auto& group) {
                   return group._reduce_scatter_base(output, input, options);
                 });
}

abortable_group::work_ptr abortable_group::reduce_scatter_tensor_coalesced(
  tensors& outputs, tensors& inputs,
  const c10d::ReduceScatterOptions& options) {
  return forward(c10d::OpType::REDUCE_SCATTER, {outputs}, [&](auto& group) {
    return group.reduce_scatter_tensor_coalesced(outputs, inputs, options);
  });
}

} // namespace troupe::internal
