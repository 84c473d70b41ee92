#include "troupe/trainers/torch/groups/tensor_collectives.hpp"

namespace troupe::internal {

namespace {

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
      refuse_call(ec::unsupported,
                  "has no PREMUL_SUM: multiply before the call");
  }
}

reduction reduction_of(const at::Tensor& x, const c10d::ReduceOp& op) {
  auto type = element_type_of(x.scalar_type());
  if (!type)
    refuse_call(ec::unsupported, std::string{"cannot reduce elements of "}
                                   + toString(x.scalar_type()));
  reduction how{*type, op_of(op)};
  if (!how.defined())
    refuse_call(ec::invalid_argument, std::string{"has no such reduction of "}
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
    refuse_call(ec::invalid_argument,
                "can only sum and average complex numbers");
  return at::view_as_real(resolved(x));
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

} // namespace

void check_reduction(const at::Tensor& x, const c10d::ReduceOp& op) {
  reduction_of(as_real(x, op), op);
}

void tensor_collectives::barrier(milliseconds timeout) {
  collectives_.barrier({{}, timeout});
}

at::ScalarType
tensor_collectives::type_of_sums(const at::Tensor& x,
                                 const c10d::ReduceOp& op) const {
  auto type = x.scalar_type();
  if (!collectives_.stores_partial_sums() || op.op_ != c10d::ReduceOp::AVG)
    return type;
  switch (type) {
    case at::kChar:
    case at::kByte:
    case at::kShort:
    case at::kInt:
      return at::kLong;
    case at::kHalf: // kBFloat16 has the range of kFloat.
      return at::kFloat;
    default:
      return type;
  }
}

void tensor_collectives::reduce(at::Tensor& x, const c10d::ReduceOp& op,
                                int root, milliseconds timeout) {
  plain_tensors guard;
  auto source = resolved(x);
  auto real = as_real(source, op);
  auto flat = real.to(type_of_sums(real, op)).contiguous();
  auto how = reduction_of(flat, op);
  auto fingerprint = fingerprint_of(root < 0 ? collective_kind::all_reduce
                                             : collective_kind::reduce,
                                    real, root);
  fingerprint.op = static_cast<std::uint32_t>(how.op);
  collectives_.all_reduce({fingerprint, timeout}, bytes_of(flat),
                          static_cast<std::size_t>(flat.numel()), how);
  if (root >= 0 && root != collectives_.rank())
    return;
  if (!flat.is_same(real))
    real.copy_(flat);
  if (!source.is_same(x))
    x.copy_(source);
}

void tensor_collectives::reduce_sparse(at::Tensor& x, const c10d::ReduceOp& op,
                                       milliseconds timeout) {
  plain_tensors guard;
  auto ranks = collectives_.ranks();
  auto mine = x.coalesce();
  // How many entries each rank has; then all get all entries, padded to the
  // longest list.
  auto count = at::full({1}, mine._nnz(), at::kLong);
  auto counts = at::empty({ranks}, at::kLong);
  auto counts_list = counts.chunk(ranks);
  gather(count, counts_list, -1, timeout);
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
    for (int r = 0; r < ranks; ++r)
      all.push_back(at::empty_like(padded));
    gather(padded, all, -1, timeout);
    for (int r = 0; r < ranks; ++r) {
      auto& part = all[static_cast<std::size_t>(r)];
      part = part.narrow(0, 0, counts[r].item<std::int64_t>());
    }
    return at::cat(all);
  };
  auto indices = exchange(mine._indices().t().contiguous());
  auto values = exchange(mine._values().contiguous());
  auto sum = at::sparse_coo_tensor(indices.t(), values, x.sizes()).coalesce();
  if (op == c10d::ReduceOp::AVG)
    sum._values().div_(ranks);
  x.copy_(sum);
}

void tensor_collectives::broadcast(at::Tensor& x, int root,
                                   milliseconds timeout) {
  plain_tensors guard;
  auto flat = resolved(x).contiguous();
  collectives_.broadcast(
    {fingerprint_of(collective_kind::broadcast, flat, root), timeout},
    bytes_of(flat), flat.nbytes());
  if (!flat.is_same(x) && root != collectives_.rank())
    x.copy_(flat);
}

void tensor_collectives::gather(const at::Tensor& input, tensors& outputs,
                                int root, milliseconds timeout) {
  plain_tensors guard;
  const bool takes = root < 0 || root == collectives_.rank();
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

void tensor_collectives::scatter(const tensors& inputs, at::Tensor& output,
                                 int root, milliseconds timeout) {
  plain_tensors guard;
  tensors flat;
  std::vector<const std::byte*> in;
  for (auto& input : inputs) {
    flat.push_back(resolved(input).contiguous());
    in.push_back(bytes_of(flat.back()));
  }
  auto out =
    is_plain(output) ? output : at::empty(output.sizes(), output.options());
  collectives_.scatter(
    {fingerprint_of(collective_kind::scatter, out, root), timeout}, in,
    bytes_of(out), out.nbytes());
  if (!out.is_same(output))
    output.copy_(out);
}

void tensor_collectives::reduce_scatter(const tensors& inputs,
                                        at::Tensor& output,
                                        const c10d::ReduceOp& op,
                                        milliseconds timeout) {
  plain_tensors guard;
  auto target = resolved(output);
  auto real = as_real(target, op);
  auto type = type_of_sums(real, op);
  auto out = real.is_contiguous() && type == real.scalar_type()
               ? real
               : at::empty(real.sizes(), real.options().dtype(type));
  auto how = reduction_of(out, op);
  auto fingerprint = fingerprint_of(collective_kind::reduce_scatter, real);
  fingerprint.op = static_cast<std::uint32_t>(how.op);
  tensors flat;
  std::vector<const std::byte*> in;
  for (auto& input : inputs) {
    flat.push_back(as_real(input, op).to(type).contiguous());
    in.push_back(bytes_of(flat.back()));
  }
  collectives_.reduce_scatter({fingerprint, timeout}, in, bytes_of(out),
                              static_cast<std::size_t>(out.numel()), how);
  if (!out.is_same(real))
    real.copy_(out);
  if (!target.is_same(output))
    output.copy_(target);
}

} // namespace troupe::internal
