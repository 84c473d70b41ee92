#include "troupe/trainers/torch/groups/local_group.hpp"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <c10/util/ParallelGuard.h>
#include <c10/util/StringUtil.h>

#include "troupe/trainers/train_context.hpp"

namespace troupe {

namespace {

/// How the group's thread touches tensors: without autograd, and without a
/// second team of OpenMP threads beside that of the rank's own thread.
struct plain_tensors {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::ParallelGuard no_threads{true};
};

template <class... Args>
[[noreturn]] void refuse(ec code, const Args&... what) {
  throw train_error{{code, c10::str("the local group ", what...)}};
}

reduction_op op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return reduction_op::sum;
    case c10d::ReduceOp::AVG:
      return reduction_op::average;
    case c10d::ReduceOp::PRODUCT:
      return reduction_op::product;
    case c10d::ReduceOp::MIN:
      return reduction_op::min;
    case c10d::ReduceOp::MAX:
      return reduction_op::max;
    case c10d::ReduceOp::BAND:
      return reduction_op::bit_and;
    case c10d::ReduceOp::BOR:
      return reduction_op::bit_or;
    case c10d::ReduceOp::BXOR:
      return reduction_op::bit_xor;
    default:
      refuse(ec::unsupported, "has no PREMUL_SUM: multiply before the call");
  }
}

reduction reduction_of(const at::Tensor& x, const c10d::ReduceOp& op) {
  auto type = element_type_of(x.scalar_type());
  if (!type)
    refuse(ec::unsupported, std::string{"cannot reduce elements of "}
                              + toString(x.scalar_type()));
  reduction how{*type, op_of(op)};
  if (!how.defined())
    refuse(ec::invalid_argument, std::string{"has no such reduction of "}
                                   + toString(x.scalar_type()));
  return how;
}

/// *x*, or a copy if its memory holds other numbers: views that are conjugated
/// or negated when they are read.
at::Tensor resolved(const at::Tensor& x) {
  return x.is_conj() || x.is_neg() ? x.resolve_conj().resolve_neg() : x;
}

/// Whether the memory of *x* holds exactly its elements, in order.
bool is_plain(const at::Tensor& x) {
  return x.is_contiguous() && !x.is_conj() && !x.is_neg();
}

/// Complex numbers are summed and averaged as pairs of real ones. A view of
/// *x*, if that is resolved.
at::Tensor as_real(const at::Tensor& x, const c10d::ReduceOp& op) {
  if (!x.is_complex())
    return resolved(x);
  if (!c10d::isComplexViewAsRealAllowed(op))
    refuse(ec::invalid_argument, "can only sum and average complex numbers");
  return at::view_as_real(resolved(x));
}

void check(const at::Tensor& x) {
  if (!x.is_cpu())
    refuse(ec::unsupported,
           "takes CPU tensors only, not one on " + x.device().str());
}

at::Tensor& only(std::vector<at::Tensor>& x) {
  if (x.size() != 1)
    refuse(ec::invalid_argument, "takes one tensor a call, not ", x.size());
  check(x.front());
  return x.front();
}

/// One list with a tensor per rank.
std::vector<at::Tensor>& one_per_rank(std::vector<std::vector<at::Tensor>>& x,
                                      int ranks, const at::Tensor& like) {
  if (x.size() != 1 || x.front().size() != static_cast<std::size_t>(ranks))
    refuse(ec::invalid_argument,
           "takes one list with a tensor for each of the ", ranks, " ranks");
  for (auto& tensor : x.front()) {
    check(tensor);
    if (tensor.numel() != like.numel()
        || tensor.scalar_type() != like.scalar_type())
      refuse(ec::invalid_argument, "needs tensors of equal size and type in "
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
    refuse(ec::invalid_argument, "needs a contiguous tensor of ", ranks,
           " times ", like.numel(), " elements of ",
           toString(like.scalar_type()));
  plain_tensors guard;
  if (like.numel() == 0)
    return std::vector<at::Tensor>(static_cast<std::size_t>(ranks), like);
  return whole.view({-1}).chunk(ranks);
}

std::byte* bytes_of(const at::Tensor& x) {
  return static_cast<std::byte*>(x.data_ptr());
}

collective_fingerprint fingerprint_of(collective_kind kind, const at::Tensor& x,
                                      int root = -1) {
  collective_fingerprint fingerprint;
  fingerprint.kind = kind;
  fingerprint.type = static_cast<std::uint32_t>(x.scalar_type());
  fingerprint.root = root;
  fingerprint.elements = static_cast<std::uint64_t>(x.numel());
  return fingerprint;
}

int root_of(std::int64_t root, int ranks) {
  if (root < 0 || root >= ranks)
    refuse(ec::invalid_argument, "has no rank ", root);
  return static_cast<int>(root);
}

} // namespace

local_group::local_group(shared_segment segment, int rank,
                         std::chrono::milliseconds timeout,
                         const std::shared_ptr<rank_activity>& activity)
  : Backend(rank, segment.ranks()), showing_group(activity),
    exchange_(std::move(segment), rank),
    options_(c10::make_intrusive<Options>("local", timeout)) {
  init();
}

local_group::~local_group() {
  close();
}

void local_group::abort(const error& reason) noexcept {
  exchange_.abort(reason);
}

void local_group::abort() {
  leaves_ = true;
  abort({ec::stopped, c10::str("rank ", rank_, " aborted the group")});
}

void local_group::close() {
  leaves_ = true;
  worker_.join([this] { exchange_.cancel(); });
}

void local_group::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
}

local_group::work_ptr local_group::enqueue(c10d::OpType type,
                                           std::vector<tensors> outputs,
                                           clock_limit timeout,
                                           std::function<void(clock_limit)> f) {
  if (timeout == c10d::kUnsetTimeout)
    timeout = options_->timeout;
  auto work = c10::make_intrusive<group_work>(rank_, type, std::move(outputs),
                                              calls_++, timeout, shown(),
                                              /*needs_all*/ true);
  auto run = [this, work, timeout, f = std::move(f),
              state = at::ThreadLocalState{}] {
    // Callbacks of the future see the modes of the caller.
    at::ThreadLocalStateGuard guard{state};
    try {
      f(timeout);
    } catch (const train_error& x) {
      auto others = x.reason().code == ec::rank_failed
                    || (x.reason().code == ec::stopped && !leaves_);
      exchange_.close();
      work->fail(std::current_exception(),
                 others ? collective_failure::others : collective_failure::own);
      return;
    } catch (...) {
      exchange_.close();
      work->fail(std::current_exception(), collective_failure::own);
      return;
    }
    exchange_.close();
    work->succeed();
  };
  if (!worker_.add(std::move(run)))
    work->fail(std::make_exception_ptr(
                 train_error{{ec::stopped, c10::str("the local group of rank ",
                                                    rank_, " is closed")}}),
               collective_failure::own);
  return work;
}

void local_group::reduce_tensor(at::Tensor& x, const c10d::ReduceOp& op,
                                int root, clock_limit timeout) {
  plain_tensors guard;
  auto source = resolved(x);
  auto real = as_real(source, op);
  auto how = reduction_of(real, op);
  auto fingerprint = fingerprint_of(root < 0 ? collective_kind::all_reduce
                                             : collective_kind::reduce,
                                    real, root);
  fingerprint.op = static_cast<std::uint32_t>(how.op);
  auto flat = real.contiguous();
  collectives_.all_reduce({fingerprint, timeout}, bytes_of(flat),
                          static_cast<std::size_t>(flat.numel()), how);
  if (root >= 0 && root != rank_)
    return;
  if (!flat.is_same(real))
    real.copy_(flat);
  if (!source.is_same(x))
    x.copy_(source);
}

void local_group::reduce_sparse(at::Tensor& x, const c10d::ReduceOp& op,
                                clock_limit timeout) {
  plain_tensors guard;
  auto mine = x.coalesce();
  // How many entries each rank has; then all get all entries, padded to the
  // longest list.
  auto count = at::full({1}, mine._nnz(), at::kLong);
  auto counts = at::empty({size_}, at::kLong);
  auto counts_list = counts.chunk(size_);
  gather_tensor(count, counts_list, -1, timeout);
  auto longest = counts.max().item<std::int64_t>();
  auto pad = [&](const at::Tensor& entries) {
    auto sizes = entries.sizes().vec();
    sizes[0] = longest;
    auto result = at::zeros(sizes, entries.options());
    result.narrow(0, 0, entries.size(0)).copy_(entries);
    return result;
  };
  auto exchange = [&](const at::Tensor& entries) {
    auto padded = pad(entries);
    tensors all;
    for (int r = 0; r < size_; ++r)
      all.push_back(at::empty_like(padded));
    gather_tensor(padded, all, -1, timeout);
    for (int r = 0; r < size_; ++r) {
      auto& part = all[static_cast<std::size_t>(r)];
      part = part.narrow(0, 0, counts[r].item<std::int64_t>());
    }
    return at::cat(all);
  };
  auto indices = exchange(mine._indices().t().contiguous());
  auto values = exchange(mine._values().contiguous());
  auto sum = at::sparse_coo_tensor(indices.t(), values, x.sizes()).coalesce();
  if (op == c10d::ReduceOp::AVG)
    sum._values().div_(size_);
  x.copy_(sum);
}

void local_group::gather_tensor(const at::Tensor& input, tensors& outputs,
                                int root, clock_limit timeout) {
  plain_tensors guard;
  const bool takes = root < 0 || root == rank_;
  auto in = resolved(input).contiguous();
  tensors flat;
  std::vector<std::byte*> out;
  for (auto& output : outputs) {
    flat.push_back(is_plain(output) ? output : at::empty_like(in));
    out.push_back(bytes_of(flat.back()));
  }
  auto kind = root < 0 ? collective_kind::all_gather : collective_kind::gather;
  collectives_.all_gather({fingerprint_of(kind, in, root), timeout},
                          bytes_of(in), in.nbytes(), out);
  for (std::size_t r = 0; takes && r < outputs.size(); ++r)
    if (!flat[r].is_same(outputs[r]))
      outputs[r].copy_(flat[r].view_as(outputs[r]));
}

void local_group::scatter_reduced(const tensors& inputs, at::Tensor& output,
                                  const c10d::ReduceOp& op,
                                  clock_limit timeout) {
  plain_tensors guard;
  auto target = resolved(output);
  auto real = as_real(target, op);
  auto how = reduction_of(real, op);
  auto fingerprint = fingerprint_of(collective_kind::reduce_scatter, real);
  fingerprint.op = static_cast<std::uint32_t>(how.op);
  tensors flat;
  std::vector<const std::byte*> in;
  for (auto& input : inputs) {
    flat.push_back(as_real(input, op).contiguous());
    in.push_back(bytes_of(flat.back()));
  }
  auto out =
    real.is_contiguous() ? real : at::empty(real.sizes(), real.options());
  collectives_.reduce_scatter({fingerprint, timeout}, in, bytes_of(out),
                              static_cast<std::size_t>(out.numel()), how);
  if (!out.is_same(real))
    real.copy_(out);
  if (!target.is_same(output))
    output.copy_(target);
}

local_group::work_ptr
local_group::allreduce(tensors& x, const c10d::AllreduceOptions& options) {
  auto& tensor = only(x);
  if (tensor.is_sparse())
    return allreduce_sparse(x, options);
  reduction_of(as_real(tensor, options.reduceOp), options.reduceOp);
  return enqueue(c10d::OpType::ALLREDUCE, {x}, options.timeout,
                 [this, tensor, op = options.reduceOp](auto limit) mutable {
                   reduce_tensor(tensor, op, -1, limit);
                 });
}

local_group::work_ptr
local_group::allreduce_sparse(tensors& x,
                              const c10d::AllreduceOptions& options) {
  auto& tensor = only(x);
  auto op = options.reduceOp;
  if (!tensor.is_sparse()
      || (op != c10d::ReduceOp::SUM && op != c10d::ReduceOp::AVG))
    refuse(ec::invalid_argument, "can only sum and average sparse tensors");
  return enqueue(c10d::OpType::_ALLREDUCE_SPARSE, {x}, options.timeout,
                 [this, tensor, op](auto limit) mutable {
                   reduce_sparse(tensor, op, limit);
                 });
}

local_group::work_ptr local_group::allreduce_coalesced(
  tensors& x, const c10d::AllreduceCoalescedOptions& options) {
  for (auto& tensor : x) {
    check(tensor);
    reduction_of(as_real(tensor, options.reduceOp), options.reduceOp);
  }
  return enqueue(c10d::OpType::ALLREDUCE_COALESCED, {x}, options.timeout,
                 [this, x, op = options.reduceOp](auto limit) mutable {
                   for (auto& tensor : x)
                     reduce_tensor(tensor, op, -1, limit);
                 });
}

local_group::work_ptr local_group::reduce(tensors& x,
                                          const c10d::ReduceOptions& options) {
  auto& tensor = only(x);
  reduction_of(as_real(tensor, options.reduceOp), options.reduceOp);
  auto root = root_of(options.rootRank, size_);
  return enqueue(
    c10d::OpType::REDUCE, {x}, options.timeout,
    [this, tensor, root, op = options.reduceOp](auto limit) mutable {
      // The tensors of the other ranks stay as they are.
      reduce_tensor(tensor, op, root, limit);
    });
}

local_group::work_ptr
local_group::broadcast(tensors& x, const c10d::BroadcastOptions& options) {
  auto& tensor = only(x);
  auto root = root_of(options.rootRank, size_);
  return enqueue(
    c10d::OpType::BROADCAST, {x}, options.timeout,
    [this, tensor, root](auto limit) {
      plain_tensors guard;
      auto flat = resolved(tensor).contiguous();
      collectives_.broadcast(
        {fingerprint_of(collective_kind::broadcast, flat, root), limit},
        bytes_of(flat), flat.nbytes());
      if (!flat.is_same(tensor) && root != rank_)
        tensor.copy_(flat);
    });
}

local_group::work_ptr
local_group::allgather(std::vector<tensors>& outputs, tensors& inputs,
                       const c10d::AllgatherOptions& options) {
  auto& input = only(inputs);
  auto& list = one_per_rank(outputs, size_, input);
  return enqueue(c10d::OpType::ALLGATHER, outputs, options.timeout,
                 [this, input, list](auto limit) mutable {
                   gather_tensor(input, list, -1, limit);
                 });
}

local_group::work_ptr local_group::gather(std::vector<tensors>& outputs,
                                          tensors& inputs,
                                          const c10d::GatherOptions& options) {
  auto& input = only(inputs);
  auto root = root_of(options.rootRank, size_);
  tensors list;
  if (root == rank_)
    list = one_per_rank(outputs, size_, input);
  return enqueue(c10d::OpType::GATHER, outputs, options.timeout,
                 [this, input, list, root](auto limit) mutable {
                   gather_tensor(input, list, root, limit);
                 });
}

local_group::work_ptr
local_group::scatter(tensors& outputs, std::vector<tensors>& inputs,
                     const c10d::ScatterOptions& options) {
  auto& output = only(outputs);
  auto root = root_of(options.rootRank, size_);
  tensors list;
  if (root == rank_)
    list = one_per_rank(inputs, size_, output);
  return enqueue(
    c10d::OpType::SCATTER, {outputs}, options.timeout,
    [this, output, list, root](auto limit) {
      plain_tensors guard;
      tensors flat;
      std::vector<const std::byte*> in;
      for (auto& input : list) {
        flat.push_back(resolved(input).contiguous());
        in.push_back(bytes_of(flat.back()));
      }
      auto out =
        is_plain(output) ? output : at::empty(output.sizes(), output.options());
      collectives_.scatter(
        {fingerprint_of(collective_kind::scatter, out, root), limit}, in,
        bytes_of(out), out.nbytes());
      if (!out.is_same(output))
        output.copy_(out);
    });
}

local_group::work_ptr
local_group::reduce_scatter(tensors& outputs, std::vector<tensors>& inputs,
                            const c10d::ReduceScatterOptions& options) {
  auto& output = only(outputs);
  auto& list = one_per_rank(inputs, size_, output);
  reduction_of(as_real(output, options.reduceOp), options.reduceOp);
  return enqueue(
    c10d::OpType::REDUCE_SCATTER, {outputs}, options.timeout,
    [this, output, list, op = options.reduceOp](auto limit) mutable {
      scatter_reduced(list, output, op, limit);
    });
}

local_group::work_ptr
local_group::barrier(const c10d::BarrierOptions& options) {
  return enqueue(c10d::OpType::BARRIER, {}, options.timeout,
                 [this](auto limit) {
                   collectives_.barrier({{}, limit});
                 });
}

local_group::work_ptr
local_group::_allgather_base(at::Tensor& output, at::Tensor& input,
                             const c10d::AllgatherOptions& options) {
  return enqueue(
    c10d::OpType::_ALLGATHER_BASE, {{output}}, options.timeout,
    [this, input, list = parts_of(output, input, size_)](auto limit) mutable {
      gather_tensor(input, list, -1, limit);
    });
}

local_group::work_ptr local_group::allgather_into_tensor_coalesced(
  tensors& outputs, tensors& inputs, const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size())
    refuse(ec::invalid_argument, "needs an output for each input");
  std::vector<tensors> lists;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    lists.push_back(parts_of(outputs[i], inputs[i], size_));
  return enqueue(c10d::OpType::ALLGATHER_COALESCED, {outputs}, options.timeout,
                 [this, inputs, lists](auto limit) mutable {
                   for (std::size_t i = 0; i < inputs.size(); ++i)
                     gather_tensor(inputs[i], lists[i], -1, limit);
                 });
}

local_group::work_ptr
local_group::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& options) {
  reduction_of(as_real(output, options.reduceOp), options.reduceOp);
  return enqueue(c10d::OpType::_REDUCE_SCATTER_BASE, {{output}},
                 options.timeout,
                 [this, output, list = parts_of(input, output, size_),
                  op = options.reduceOp](auto limit) mutable {
                   scatter_reduced(list, output, op, limit);
                 });
}

local_group::work_ptr local_group::reduce_scatter_tensor_coalesced(
  tensors& outputs, tensors& inputs,
  const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size())
    refuse(ec::invalid_argument, "needs an input for each output");
  std::vector<tensors> lists;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    reduction_of(as_real(outputs[i], options.reduceOp), options.reduceOp);
    lists.push_back(parts_of(inputs[i], outputs[i], size_));
  }
  return enqueue(
    c10d::OpType::REDUCE_SCATTER, {outputs}, options.timeout,
    [this, outputs, lists, op = options.reduceOp](auto limit) mutable {
      for (std::size_t i = 0; i < outputs.size(); ++i)
        scatter_reduced(lists[i], outputs[i], op, limit);
    });
}

} // namespace troupe
