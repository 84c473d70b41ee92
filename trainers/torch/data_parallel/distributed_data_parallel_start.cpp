#include <algorithm>
#include <exception>
#include <string>

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "troupe/trainers/torch/data_parallel/distributed_data_parallel.hpp"
#include "troupe/trainers/torch/data_parallel/gradient_sink.hpp"
#include "troupe/trainers/torch/data_parallel/kept_gradients.hpp"
#include "troupe/trainers/torch/data_parallel/reducer_factory.hpp"
#include "troupe/trainers/torch/data_parallel/replica_comparison.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

// How a model gets its Reducer: with a group, and again whenever other
// parameters are to be averaged.
namespace troupe::internal {

namespace {

using group_ptr = c10::intrusive_ptr<c10d::ProcessGroup>;

/// What is wrong with a parameter of *model* that was frozen, and so is not in
/// *reduced*, while it had a gradient of `no_sync`; empty if there is none.
std::string frozen_with_gradient(const kept_gradients& kept,
                                 const model_tensors& model,
                                 const std::vector<named_tensor>& reduced) {
  auto name = kept.left_behind(model, reduced);
  if (name.empty())
    return {};
  return c10::str(
    "parameter ", name,
    " was frozen while it had a gradient that no_sync() kept on this rank, "
    "which would not be averaged any more: freeze it after a step, or "
    "forget the gradient with zero_grad()");
}

/// How the tensors of *model* differ from those of rank 0: *reduced* in their
/// shapes and types, *shared* in their names. Two collectives.
std::string mismatch_with_rank_0(const group_ptr& group,
                                 const model_tensors& model,
                                 const std::vector<named_tensor>& reduced,
                                 const std::vector<named_tensor>& shared,
                                 at::Device device) {
  std::vector<at::Tensor> parameters;
  for (auto& x : reduced)
    parameters.push_back(x.tensor);
  std::string result;
  try {
    c10d::verify_params_across_processes(group, parameters, std::nullopt);
  } catch (const c10::Error& e) {
    result = "parameters of model " + model.model
             + " differ from those of rank 0: " + e.what_without_backtrace();
  }
  auto names_differ = !has_names_of_rank_0(group, shared, device);
  if (result.empty() && names_differ)
    result =
      "model " + model.model
      + " has parameters or buffers with other names or in another order than "
        "on rank 0, or trains other ones: gradients are averaged in the order "
        "of register_parameter and register_module, which has to be the same "
        "on all ranks";
  return result;
}

} // namespace

/// Ranks that are refused are refused together: then all keep the Reducer that
/// they have, and start again at their next forward.
void distributed_data_parallel::start(bool with_parameters, bool with_buffers) {
  starts_again_ = true;
  auto model = source_.tensors();
  model_ = model.model;
  auto trained = trained_now();
  auto reduced = reduced_of(model, options_);
  // Without anything to train, the ranks still agree on that, if the group can.
  device_ = reduced.empty() ? group_->getBoundDeviceId().value_or(at::kCPU)
                            : reduced.front().tensor.device();
  auto problem = problem_of(model, reduced, options_);
  agree(problem.empty() ? frozen_with_gradient(*kept_, model, reduced)
                        : problem);
  auto shared = reduced;
  auto add = [&shared](const std::vector<named_tensor>& list) {
    shared.insert(shared.end(), list.begin(), list.end());
  };
  if (with_parameters)
    add(model.parameters);
  if (with_buffers || options_.sync_buffers)
    add(model.buffers);
  std::erase_if(shared, [&](auto& x) { return is_ignored(options_, x.name); });
  agree(mismatch_with_rank_0(group_, model, reduced, shared, device_));
  copy_from(0, model, with_parameters, with_buffers);
  replace_reducer([&] {
    trained_ = std::move(trained);
    auto before = std::exchange(reduced_, std::move(reduced));
    kept_->follow(reduced_);
    if (with_parameters)
      kept_->forget_changes();
    make_reducer();
    note_left(model, before);
  });
  owners_are_due_ = true;
  starts_again_ = false;
}

/// Calls *make*, which makes this rank's Reducer; throws on all ranks if it
/// fails on one. From here on a rank can tell the others of any failure.
void distributed_data_parallel::replace_reducer(
  const std::function<void()>& make) {
  auto flag = one_number(0);
  std::exception_ptr failure;
  try {
    make();
  } catch (...) {
    failure = std::current_exception();
  }
  auto rank = group_->getRank();
  if (failure)
    flag[0].fill_(rank + 1);
  auto largest = all_reduce(flag, c10d::ReduceOp::MAX);
  if (largest > 0) { // The others do not have one.
    logger_.reset();
    reducer_.reset();
  }
  if (failure)
    std::rethrow_exception(failure);
  if (largest > 0)
    throw_invalid_argument(
      "rank ", rank, ": rank ", largest - 1,
      " could not prepare to average the gradients of this model; its own "
      "error says why");
}

void distributed_data_parallel::make_reducer() {
  logger_.reset(); // reads the reducer while it goes
  reducer_.reset();
  sink_ = std::make_shared<gradient_sink_state>();
  sink_->static_graph = options_.static_graph;
  sink_->kept = kept_;
  auto reducer =
    internal::make_reducer(reduced_, group_, options_, sync_, sink_);
  sink_->reducer = reducer;
  auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  std::vector<int> devices;
  if (device_.has_index())
    devices.push_back(device_.index());
  logger->set_construction_data_and_log(
    model_, devices, devices.empty() ? -1 : devices[0], options_.sync_buffers,
    false, options_.static_graph);
  if (options_.static_graph)
    logger->set_static_graph();
  reducer_ = std::move(reducer);
  logger_ = std::move(logger);
}

/// Not at the start: `model = prepare_model(...)` makes a model before it
/// releases the one before. Forwards in a join or no_sync() may not be of all
/// ranks.
void distributed_data_parallel::refuse_other_owners() {
  if (!owners_are_due_ || join_ || !*sync_)
    return;
  std::string problem;
  for (auto& x : reduced_)
    if (problem.empty() && has_other_owner(x.tensor, kept_.get()))
      problem = c10::str("parameter ", x.name,
                         " belongs to another prepared model, too, so that "
                         "each would refuse the gradients of the other: "
                         "release that model, or prepare one module that "
                         "holds both");
  agree(problem);
  owners_are_due_ = false;
}

/// Throws on every rank if any has a *problem*: otherwise the others would wait
/// for the rank that left.
void distributed_data_parallel::agree(const std::string& problem) {
  auto rank = group_->getRank();
  auto culprit = all_reduce(problem.empty() ? -1 : rank, c10d::ReduceOp::MAX);
  if (!problem.empty())
    throw_invalid_argument("rank ", rank, ": ", problem);
  if (culprit >= 0)
    throw_invalid_argument(
      "rank ", rank, ": rank ", culprit,
      " cannot train this model with the others; its own error says "
      "why");
}

std::vector<at::Tensor>
distributed_data_parallel::one_number(std::int64_t value) const {
  return {at::full({1}, value, at::TensorOptions{at::kLong}.device(device_))};
}

std::int64_t
distributed_data_parallel::all_reduce(std::int64_t value,
                                      c10d::ReduceOp::RedOpType op) {
  auto x = one_number(value);
  return all_reduce(x, op);
}

std::int64_t
distributed_data_parallel::all_reduce(std::vector<at::Tensor>& x,
                                      c10d::ReduceOp::RedOpType op) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group_->allreduce(x, options)->wait();
  return x[0].item<std::int64_t>();
}

std::vector<c10::TensorImpl*> distributed_data_parallel::trained_now() const {
  std::vector<c10::TensorImpl*> result;
  source_.append_parameters(result);
  std::erase_if(result, [](auto x) { return !x->requires_grad(); });
  return result;
}

/// Distinguishes the gradients that the Reducer before this one averaged from
/// those that come while a parameter is not averaged.
void distributed_data_parallel::note_left(
  const model_tensors& model, const std::vector<named_tensor>& before) {
  auto has = [](const std::vector<named_tensor>& list, const at::Tensor& x) {
    return std::ranges::any_of(list,
                               [&x](auto& y) { return y.tensor.is_same(x); });
  };
  std::erase_if(left_, [&](auto& x) {
    return has(reduced_, x.tensor) || !has(model.parameters, x.tensor);
  });
  for (auto& x : before)
    if (!has(reduced_, x.tensor) && has(model.parameters, x.tensor)) {
      auto got_gradient = std::make_shared<bool>(false);
      auto notes =
        after_each_gradient(x.tensor, nullptr, [=] { *got_gradient = true; });
      if (notes)
        left_.push_back({x.tensor, got_gradient, std::move(notes)});
    }
}

/// Averages from now on what requires a gradient now. A completely frozen model
/// only passes gradients through: then nothing changes.
void distributed_data_parallel::follow_parameters() {
  auto now = trained_now();
  auto receives = regain_gradients(*reducer_);
  if (receives && now == trained_ && !starts_again_)
    return;
  auto is_same = [](auto& x, auto& y) { return x.tensor.is_same(y.tensor); };
  auto reduced = reduced_of(source_.tensors(), options_);
  auto same = std::ranges::equal(reduced, reduced_, is_same);
  if (!starts_again_ && (reduced.empty() || (receives && same))) {
    trained_ = std::move(now);
    return;
  }
  if (join_)
    throw_invalid_argument(
      "rank ", group_->getRank(), ": ",
      same ? "parameters of model " : "other parameters of model ", model_,
      same ? " became of another type or device" : " require a gradient",
      " than before join(); a rank without data could not follow");
  start(options_.broadcast_at_start, false);
}

} // namespace troupe::internal
