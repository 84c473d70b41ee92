#include "troupe/trainers/torch/data_parallel/reducer_factory.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "troupe/trainers/torch/data_parallel/strict_reducer.hpp"

namespace troupe::internal {

namespace {

using group_ptr = c10::intrusive_ptr<c10d::ProcessGroup>;
using bucket_list = std::vector<std::vector<size_t>>;
using names_map = std::unordered_map<size_t, std::string>;

constexpr std::int64_t default_bucket_bytes = c10d::kDefaultBucketBytesCap;
constexpr std::int64_t default_first_bytes = c10d::kDefaultFirstBucketBytes;

/// Averages a bucket of gradients in bfloat16.
class bf16_hook final : public c10d::CommHookInterface {
public:
  explicit bf16_hook(group_ptr group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future>
  runHook(c10d::GradBucket& bucket) override {
    auto gradients = bucket.getBuffer();
    // Divided in full precision and before the sum, so that each rank's share
    // is rounded once.
    std::vector<at::Tensor> half{
      at::empty_like(gradients, gradients.options().dtype(at::kBFloat16))};
    at::div_out(half[0], gradients, at::scalar_tensor(group_->getSize()));
    auto work = group_->allreduce(half);
    return work->getFuture()->then(
      [gradients, half, work](c10::ivalue::Future& sum) {
        sum.value(); // throws what the group threw
        at::NoGradGuard no_grad;
        return c10::IValue{gradients.copy_(half[0])};
      },
      c10::TensorType::get());
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return result.toTensor();
  }

private:
  group_ptr group_;
};

struct reducer_arguments {
  std::vector<at::Tensor> parameters;
  bucket_list buckets;
  group_ptr group;
  std::vector<bool> sparse;
  names_map names;
  std::int64_t bucket_bytes;
  std::int64_t first_bytes;
  bool views;
  bool batched_copy;
};

/// `std::is_constructible` for the Reducer of one LibTorch or another.
template <class... Ts>
constexpr bool takes = std::is_constructible_v<strict_reducer, Ts...>;

template <class>
constexpr bool always_false = false;

/// The forms of the Reducer's constructor, newest first.
template <class Parameters = std::vector<at::Tensor>>
std::shared_ptr<strict_reducer>
construct(reducer_arguments x, const data_parallel_options& options) {
  using sparse = std::vector<bool>;
  using sizes = std::vector<std::int64_t>;
  if constexpr (takes<Parameters, bucket_list, group_ptr, sparse, std::int64_t,
                      bool, bool, names_map, std::int64_t, bool, bool, sizes,
                      bool, bool>)
    return std::make_shared<strict_reducer>(
      std::move(x.parameters), std::move(x.buckets), std::move(x.group),
      std::move(x.sparse), x.bucket_bytes, options.find_unused_parameters,
      x.views, std::move(x.names), x.first_bytes, false, false,
      options.bucket_bytes_list, x.batched_copy,
      options.lazy_bucket_allocation);
  else if constexpr (takes<Parameters, bucket_list, group_ptr, sparse,
                           std::int64_t, bool, bool, names_map, std::int64_t,
                           bool, bool, sizes>)
    return std::make_shared<strict_reducer>(
      std::move(x.parameters), std::move(x.buckets), std::move(x.group),
      std::move(x.sparse), x.bucket_bytes, options.find_unused_parameters,
      x.views, std::move(x.names), x.first_bytes, false, false,
      options.bucket_bytes_list);
  else if constexpr (takes<Parameters, bucket_list, group_ptr, sparse,
                           std::int64_t, bool, bool, names_map, std::int64_t,
                           bool, bool>)
    return std::make_shared<strict_reducer>(
      std::move(x.parameters), std::move(x.buckets), std::move(x.group),
      std::move(x.sparse), x.bucket_bytes, options.find_unused_parameters,
      x.views, std::move(x.names), x.first_bytes, false, false);
  else if constexpr (takes<Parameters, bucket_list, group_ptr, sparse,
                           std::int64_t, bool, bool, names_map, std::int64_t>)
    return std::make_shared<strict_reducer>(
      std::move(x.parameters), std::move(x.buckets), std::move(x.group),
      std::move(x.sparse), x.bucket_bytes, options.find_unused_parameters,
      x.views, std::move(x.names), x.first_bytes);
  else
    static_assert(always_false<Parameters>,
                  "this LibTorch has yet another constructor of c10d::Reducer: "
                  "read torch/csrc/distributed/c10d/reducer.hpp and add it");
}

/// Sizes of the buckets before the first backward. Where the Reducer rebuilds
/// them in the order in which gradients come, a single one does until then.
std::vector<size_t> first_limits(const data_parallel_options& options,
                                 std::int64_t first, std::int64_t cap) {
  auto& list = options.bucket_bytes_list;
  if (!list.empty())
    return {list.begin(), list.end()};
  if (options.static_graph || !options.find_unused_parameters)
    return {std::numeric_limits<size_t>::max()};
  if (first < cap)
    return {static_cast<size_t>(first), static_cast<size_t>(cap)};
  return {static_cast<size_t>(cap)};
}

void set_hook(c10d::Reducer& reducer, const group_ptr& group,
              const data_parallel_options& options) {
  if (options.comm_hook)
    reducer.register_comm_hook(options.comm_hook(group));
  else if (options.compression == gradient_compression::fp16)
    reducer.register_builtin_comm_hook(
      c10d::BuiltinCommHookType::FP16_COMPRESS);
  else if (options.compression == gradient_compression::bf16)
    reducer.register_comm_hook(std::make_unique<bf16_hook>(group));
}

} // namespace

std::shared_ptr<c10d::Reducer>
make_reducer(const std::vector<named_tensor>& parameters,
             const group_ptr& group, const data_parallel_options& options,
             std::shared_ptr<const bool> sync,
             std::shared_ptr<gradient_sink_state> sink) {
  reducer_arguments x;
  x.group = group;
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    x.parameters.push_back(parameters[i].tensor);
    x.sparse.push_back(parameters[i].sparse_gradient);
    x.names.emplace(i, parameters[i].name);
    names.push_back(parameters[i].name);
  }
  auto& list = options.bucket_bytes_list;
  x.bucket_bytes = !list.empty()
                     ? *std::max_element(list.begin(), list.end())
                     : options.bucket_bytes.value_or(default_bucket_bytes);
  x.first_bytes = options.bucket_bytes || !list.empty() ? x.bucket_bytes
                                                        : default_first_bytes;
  x.views = options.gradient_as_bucket_view;
  x.batched_copy = options.batched_grad_copy.value_or(
    x.parameters.front().device().type() != at::kCPU);
  // Gradients come last layer first: so do the buckets.
  x.buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
    x.parameters, first_limits(options, x.first_bytes, x.bucket_bytes),
    x.sparse));
  std::reverse(x.buckets.begin(), x.buckets.end());
  auto reducer = construct(std::move(x), options);
  set_hook(*reducer, group, options);
  if (options.static_graph)
    reducer->set_static_graph();
  if (sync)
    reducer->watch(std::move(names), std::move(sync), std::move(sink));
  return reducer;
}

void check_backward(const c10d::Reducer& x) {
  static_cast<const strict_reducer&>(x).check_finished();
}

void refuse_if_unfinished(const c10d::Reducer& x) {
  static_cast<const strict_reducer&>(x).check_reusable();
}

bool has_failed(const c10d::Reducer& x) {
  return static_cast<const strict_reducer&>(x).has_failed();
}

bool regain_gradients(c10d::Reducer& x) {
  return static_cast<strict_reducer&>(x).regain();
}

} // namespace troupe::internal
