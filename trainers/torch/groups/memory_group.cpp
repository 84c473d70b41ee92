#include "troupe/trainers/torch/groups/memory_group.hpp"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <c10/util/StringUtil.h>

#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

void check(const at::Tensor& x) {
  if (!x.is_cpu())
    refuse_call(ec::unsupported,
                "takes CPU tensors only, not one on " + x.device().str());
}

at::Tensor& only(std::vector<at::Tensor>& x) {
  if (x.size() != 1)
    refuse_call(ec::invalid_argument, "takes one tensor per call, not ",
                x.size());
  check(x.front());
  return x.front();
}

/// One list with a tensor per rank.
std::vector<at::Tensor>& one_per_rank(std::vector<std::vector<at::Tensor>>& x,
                                      int ranks, const at::Tensor& like) {
  if (x.size() != 1 || x.front().size() != static_cast<std::size_t>(ranks))
    refuse_call(ec::invalid_argument,
                "takes one list with a tensor for each of the ", ranks,
                " ranks");
  for (auto& tensor : x.front()) {
    check(tensor);
    if (tensor.numel() != like.numel()
        || tensor.scalar_type() != like.scalar_type())
      refuse_call(ec::invalid_argument,
                  "needs tensors of equal size and type in "
                  "the list for the ranks");
  }
  return x.front();
}

/// The tensor of each rank within a single one.
std::vector<at::Tensor> parts_of(const at::Tensor& whole,
                                 const at::Tensor& like, int ranks) {
  check(whole);
  check(like);
  if (whole.numel() != like.numel() * ranks
      || whole.scalar_type() != like.scalar_type() || !whole.is_contiguous())
    refuse_call(ec::invalid_argument, "needs a contiguous tensor of ", ranks,
                " times ", like.numel(), " elements of ",
                toString(like.scalar_type()));
  plain_tensors guard;
  if (like.numel() == 0)
    return std::vector<at::Tensor>(static_cast<std::size_t>(ranks), like);
  return whole.view({-1}).chunk(ranks);
}

int root_of(std::int64_t root, int ranks) {
  if (root < 0 || root >= ranks)
    refuse_call(ec::invalid_argument, "has no rank ", root);
  return static_cast<int>(root);
}

} // namespace

memory_group::memory_group(const std::string& name,
                           memory_collectives& collectives,
                           std::chrono::milliseconds timeout,
                           const std::shared_ptr<rank_activity>& activity)
  : Backend(collectives.rank(), collectives.ranks()), showing_group(activity),
    memory_(collectives), collectives_(collectives),
    options_(c10::make_intrusive<Options>(name, timeout)) {
  init();
}

void memory_group::abort(const error& reason) noexcept {
  memory_.abort(reason);
}

void memory_group::abort() {
  leaves_ = true;
  abort({ec::stopped, c10::str("rank ", rank_, " aborted the group")});
}

void memory_group::close() {
  leaves_ = true;
  worker_.join([this] { memory_.cancel(); });
}

void memory_group::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
}

memory_group::work_ptr
memory_group::enqueue(c10d::OpType type, std::vector<tensors> outputs,
                      clock_limit timeout, std::function<void(clock_limit)> f) {
  if (!owner_.is_here())
    refuse_call(ec::invalid_argument, "of rank ", rank_,
                " was called in a process that the train loop forked");
  if (timeout == c10d::kUnsetTimeout)
    timeout = options_->timeout;
  auto work = c10::make_intrusive<group_work>(rank_, type, std::move(outputs),
                                              calls_++, timeout, shown(),
                                              /*needs_all*/ true);
  work->set_thread(worker_.id());
  auto run = [this, work, timeout, f = std::move(f),
              state = at::ThreadLocalState{}] {
    // Callbacks of the future see the modes of the caller.
    at::ThreadLocalStateGuard guard{state};
    try {
      f(timeout);
    } catch (const train_error& x) {
      auto others = x.reason().code == ec::rank_failed
                    || (x.reason().code == ec::stopped && !leaves_);
      memory_.close();
      work->fail(std::current_exception(),
                 others ? collective_failure::others : collective_failure::own);
      return;
    } catch (...) {
      memory_.close();
      work->fail(std::current_exception(), collective_failure::own);
      return;
    }
    memory_.close();
    work->succeed();
  };
  if (!worker_.add(std::move(run)))
    work->fail(
      std::make_exception_ptr(train_error{
        {ec::stopped, c10::str("the group of rank ", rank_, " is closed")}}),
      collective_failure::own);
  return work;
}

memory_group::work_ptr
memory_group::allreduce(tensors& x, const c10d::AllreduceOptions& options) {
  auto& tensor = only(x);
  if (tensor.is_sparse())
    return allreduce_sparse(x, options);
  check_reduction(tensor, options.reduceOp);
  return enqueue(c10d::OpType::ALLREDUCE, {x}, options.timeout,
                 [this, tensor, op = options.reduceOp](auto limit) mutable {
                   collectives_.reduce(tensor, op, -1, limit);
                 });
}

memory_group::work_ptr
memory_group::allreduce_sparse(tensors& x,
                               const c10d::AllreduceOptions& options) {
  auto& tensor = only(x);
  auto op = options.reduceOp;
  if (!tensor.is_sparse()
      || (op != c10d::ReduceOp::SUM && op != c10d::ReduceOp::AVG))
    refuse_call(ec::invalid_argument,
                "can only sum and average sparse tensors");
  return enqueue(c10d::OpType::_ALLREDUCE_SPARSE, {x}, options.timeout,
                 [this, tensor, op](auto limit) mutable {
                   collectives_.reduce_sparse(tensor, op, limit);
                 });
}

memory_group::work_ptr memory_group::allreduce_coalesced(
  tensors& x, const c10d::AllreduceCoalescedOptions& options) {
  for (auto& tensor : x) {
    check(tensor);
    check_reduction(tensor, options.reduceOp);
  }
  return enqueue(c10d::OpType::ALLREDUCE_COALESCED, {x}, options.timeout,
                 [this, x, op = options.reduceOp](auto limit) mutable {
                   for (auto& tensor : x)
                     collectives_.reduce(tensor, op, -1, limit);
                 });
}

memory_group::work_ptr
memory_group::reduce(tensors& x, const c10d::ReduceOptions& options) {
  auto& tensor = only(x);
  check_reduction(tensor, options.reduceOp);
  auto root = root_of(options.rootRank, size_);
  return enqueue(
    c10d::OpType::REDUCE, {x}, options.timeout,
    [this, tensor, root, op = options.reduceOp](auto limit) mutable {
      // The tensors of the other ranks stay as they are.
      collectives_.reduce(tensor, op, root, limit);
    });
}

memory_group::work_ptr
memory_group::broadcast(tensors& x, const c10d::BroadcastOptions& options) {
  auto& tensor = only(x);
  auto root = root_of(options.rootRank, size_);
  return enqueue(c10d::OpType::BROADCAST, {x}, options.timeout,
                 [this, tensor, root](auto limit) mutable {
                   collectives_.broadcast(tensor, root, limit);
                 });
}

memory_group::work_ptr
memory_group::allgather(std::vector<tensors>& outputs, tensors& inputs,
                        const c10d::AllgatherOptions& options) {
  auto& input = only(inputs);
  auto& list = one_per_rank(outputs, size_, input);
  return enqueue(c10d::OpType::ALLGATHER, outputs, options.timeout,
                 [this, input, list](auto limit) mutable {
                   collectives_.gather(input, list, -1, limit);
                 });
}

memory_group::work_ptr
memory_group::gather(std::vector<tensors>& outputs, tensors& inputs,
                     const c10d::GatherOptions& options) {
  auto& input = only(inputs);
  auto root = root_of(options.rootRank, size_);
  tensors list;
  if (root == rank_)
    list = one_per_rank(outputs, size_, input);
  return enqueue(c10d::OpType::GATHER, outputs, options.timeout,
                 [this, input, list, root](auto limit) mutable {
                   collectives_.gather(input, list, root, limit);
                 });
}

memory_group::work_ptr
memory_group::scatter(tensors& outputs, std::vector<tensors>& inputs,
                      const c10d::ScatterOptions& options) {
  auto& output = only(outputs);
  auto root = root_of(options.rootRank, size_);
  tensors list;
  if (root == rank_)
    list = one_per_rank(inputs, size_, output);
  return enqueue(c10d::OpType::SCATTER, {outputs}, options.timeout,
                 [this, output, list, root](auto limit) mutable {
                   collectives_.scatter(list, output, root, limit);
                 });
}

memory_group::work_ptr
memory_group::reduce_scatter(tensors& outputs, std::vector<tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) {
  auto& output = only(outputs);
  auto& list = one_per_rank(inputs, size_, output);
  check_reduction(output, options.reduceOp);
  return enqueue(
    c10d::OpType::REDUCE_SCATTER, {outputs}, options.timeout,
    [this, output, list, op = options.reduceOp](auto limit) mutable {
      collectives_.reduce_scatter(list, output, op, limit);
    });
}

memory_group::work_ptr
memory_group::barrier(const c10d::BarrierOptions& options) {
  return enqueue(c10d::OpType::BARRIER, {}, options.timeout,
                 [this](auto limit) { collectives_.barrier(limit); });
}

memory_group::work_ptr
memory_group::_allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) {
  return enqueue(
    c10d::OpType::_ALLGATHER_BASE, {{output}}, options.timeout,
    [this, input, list = parts_of(output, input, size_)](auto limit) mutable {
      collectives_.gather(input, list, -1, limit);
    });
}

memory_group::work_ptr memory_group::allgather_into_tensor_coalesced(
  tensors& outputs, tensors& inputs, const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size())
    refuse_call(ec::invalid_argument, "needs an output for each input");
  std::vector<tensors> lists;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    lists.push_back(parts_of(outputs[i], inputs[i], size_));
  return enqueue(c10d::OpType::ALLGATHER_COALESCED, {outputs}, options.timeout,
                 [this, inputs, lists](auto limit) mutable {
                   for (std::size_t i = 0; i < inputs.size(); ++i)
                     collectives_.gather(inputs[i], lists[i], -1, limit);
                 });
}

memory_group::work_ptr
memory_group::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) {
  check_reduction(output, options.reduceOp);
  return enqueue(c10d::OpType::_REDUCE_SCATTER_BASE, {{output}},
                 options.timeout,
                 [this, output, list = parts_of(input, output, size_),
                  op = options.reduceOp](auto limit) mutable {
                   collectives_.reduce_scatter(list, output, op, limit);
                 });
}

memory_group::work_ptr memory_group::reduce_scatter_tensor_coalesced(
  tensors& outputs, tensors& inputs,
  const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size())
    refuse_call(ec::invalid_argument, "needs an input for each output");
  std::vector<tensors> lists;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_reduction(outputs[i], options.reduceOp);
    lists.push_back(parts_of(inputs[i], outputs[i], size_));
  }
  return enqueue(
    c10d::OpType::REDUCE_SCATTER, {outputs}, options.timeout,
    [this, outputs, lists, op = options.reduceOp](auto limit) mutable {
      for (std::size_t i = 0; i < outputs.size(); ++i)
        collectives_.reduce_scatter(lists[i], outputs[i], op, limit);
    });
}

} // namespace troupe::internal
