#include "troupe/trainers/torch/data_parallel/distributed_data_parallel.hpp"

#include <algorithm>
#include <string>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "troupe/trainers/torch/data_parallel/gradient_sink.hpp"
#include "troupe/trainers/torch/data_parallel/kept_gradients.hpp"
#include "troupe/trainers/torch/data_parallel/reducer_factory.hpp"
#include "troupe/trainers/torch/data_parallel/replica_comparison.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

using group_ptr = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr auto remedy = "join() does not copy the state of optimizers, such as "
                        "momentum or step counts; after one of ranks with "
                        "different numbers of steps, create a new optimizer on "
                        "all ranks or copy its state from one rank, and make "
                        "the weights equal again, as by loading those of a "
                        "checkpoint on all ranks";

/// What happened to a parameter, and what to do instead.
std::pair<const char*, const char*> said_of(change_cause cause) {
  switch (cause) {
    case change_cause::left:
      return {" was changed after a backward that failed or was refused, whose "
              "gradients were not averaged",
              "clear them with zero_grad() before the next step, and before "
              "weights are loaded"};
    case change_cause::rounded:
      return {" was rounded while the model was of a narrower type, or "
              "rounded weights were loaded since prepare_model()",
              "convert a copy, as of module->clone(), and load such weights "
              "before prepare_model()"};
    case change_cause::stepped:
      return {" was stepped by optimizers that differ between ranks", remedy};
    case change_cause::kept:
      break;
  }
  return {
    " was changed after a backward whose gradients no_sync() kept on this "
    "rank",
    "the last backward before a step has to be outside of no_sync()"};
}

} // namespace

distributed_data_parallel::distributed_data_parallel(
  model_tensors_source source, group_ptr group, data_parallel_options options)
  : source_(std::move(source)), options_(std::move(options)),
    kept_(std::make_shared<kept_gradients>()) {
  if (group && group->getSize() > 1) {
    group_ = std::move(group);
    on_rank(
      [&] { start(options_.broadcast_at_start, options_.broadcast_at_start); });
  } else if (auto problem = problem_of(source_.tensors(), options_);
             !problem.empty()) {
    throw_invalid_argument(problem); // what would be refused with a second rank
  }
}

distributed_data_parallel::~distributed_data_parallel() {
  drop();
}

void distributed_data_parallel::drop() {
  // The logger reads the reducer while it goes.
  logger_.reset();
  reducer_.reset();
  sink_.reset();
  group_.reset();
  dropped_ = true;
}

void distributed_data_parallel::zero_grad() {
  if (reducer_ && has_failed(*reducer_))
    sink_->backward = backward_state::cleared;
  kept_->clear();
  std::vector<c10::TensorImpl*> parameters;
  source_.append_parameters(parameters);
  for (auto x : parameters)
    x->mutable_grad().reset();
}

/// A parameter that is averaged only from the next forward on and has a
/// gradient already, so that no hook saw it come; empty if there is none.
std::string distributed_data_parallel::learns_unfollowed() const {
  if (trained_now() == trained_)
    return {};
  for (auto& x : reduced_of(source_.tensors(), options_)) {
    auto is_same = [&x](auto& y) { return x.tensor.is_same(y.tensor); };
    auto left = std::ranges::find_if(left_, is_same);
    if (std::ranges::none_of(reduced_, is_same)
        && (left == left_.end() || *left->got_gradient)
        && has_gradient(x.tensor))
      return x.name;
  }
  return {};
}

void distributed_data_parallel::check_backward() const {
  refuse_if_dropped();
  if (!active())
    return;
  internal::check_backward(*reducer_);
  if (auto name = learns_unfollowed(); !name.empty())
    throw_invalid_argument(
      "rank ", group_->getRank(), ": parameter ", name,
      " has a gradient that was not averaged with those of the other ranks, "
      "because it requires one only since the last model.forward(...): call "
      "that instead of model->forward(...), or clear an old gradient with "
      "zero_grad()");
  regain_gradients(*reducer_);
  if (auto changed = kept_->changed()) {
    auto [what, instead] = said_of(changed->cause);
    throw_invalid_argument(
      "rank ", group_->getRank(), ": parameter ", changed->name, what,
      ", so that the ranks' weights may differ now: ", instead,
      "; if all ranks have equal weights again, such as those of a checkpoint, "
      "call check_replicas() on all of them");
  }
}

void distributed_data_parallel::refuse_if_dropped() const {
  if (dropped_)
    throw_invalid_argument("the group was dropped after a failure: let its "
                           "exception leave the train loop, so that the next "
                           "attempt resumes");
}

void distributed_data_parallel::check_replicas() {
  refuse_if_dropped();
  if (active())
    on_rank([&] { compare_replicas(); });
}

/// Called by all ranks at the same forward or end of a join.
void distributed_data_parallel::compare_if_stepped() {
  // A loop may make forwards without backwards. One that failed here after its
  // reductions has ended on other ranks; one that failed before is refused.
  if (comparison_ != comparison::after_a_step
      || sink_->backward == backward_state::none || !options_.check_after_copy
      || options_.comm_hook)
    return;
  compare_replicas(true);
  comparison_ = comparison::none;
}

void distributed_data_parallel::compare_replicas(bool finds_optimizers) {
  auto parameters = source_.tensors().parameters;
  std::erase_if(parameters,
                [&](auto& x) { return is_ignored(options_, x.name); });
  if (auto found = find_difference(group_, parameters, device_)) {
    if (finds_optimizers)
      kept_->note_difference(found->parameter);
    throw_invalid_argument(
      "rank ", group_->getRank(), ": parameter ", found->parameter, " of rank ",
      found->rank,
      " differs from that of rank 0, although their gradients are "
      "averaged: ",
      finds_optimizers
        ? remedy
        : "has a rank made a step with gradients or with a learning rate of "
          "its own, or loaded other weights?");
  }
  kept_->forget_changes();
}

void distributed_data_parallel::check_at_reports(train_context& context) {
  at_reports_ =
    rank_access{context}.before_report([this] { check_backward(); });
}

/// Copies what the ranks share of *model* from *rank* to all. Hidden from
/// autograd's version counters: a graph that saved a buffer is still valid for
/// its backward.
void distributed_data_parallel::copy_from(int rank, const model_tensors& model,
                                          bool parameters, bool buffers) {
  std::vector<at::Tensor> state;
  auto add = [&](const std::vector<named_tensor>& list) {
    for (auto& x : list)
      if (!is_ignored(options_, x.name))
        state.push_back(x.tensor.detach());
  };
  if (parameters)
    add(model.parameters);
  if (buffers)
    add(model.buffers);
  if (state.empty())
    return;
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10d::broadcast_coalesced(
    group_, state, static_cast<size_t>(options_.broadcast_bytes), rank);
}

void distributed_data_parallel::broadcast_buffers() {
  refuse_if_dropped();
  if (active())
    on_rank([&] { buffers_from(0); });
}

void distributed_data_parallel::buffers_from(int rank) {
  copy_from(rank, source_.tensors(), false, true);
}

void distributed_data_parallel::before_forward() {
  refuse_if_dropped();
  auto learns = at::GradMode::is_enabled();
  if (!active() || (join_ && !learns))
    return;
  with_reducer([&] { prepare_forward(learns); });
}

void distributed_data_parallel::prepare_forward(bool learns) {
  if (learns)
    internal::check_backward(*reducer_);
  // On a GPU this would wait for the device.
  if (learns && *sync_ && !join_ && device_.is_cpu() && kept_to_itself_) {
    const std::int64_t mine = kept_->changed() ? 1 : 0;
    if (all_reduce(mine, c10d::ReduceOp::MAX) > 0)
      compare_replicas(); // One rank may see what another does not.
  }
  if (learns) {
    follow_parameters();
    refuse_other_owners();
  }
  // A static graph is learned from the first backward, which has to be
  // averaged.
  if (learns && *sync_ && sink_->bypassed)
    make_reducer();
  if (learns)
    refuse_if_unfinished(*reducer_);
  if (learns && *sync_) {
    logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  if (join_)
    announce_data();
  if (learns)
    reducer_->rebuild_buckets();
  if (buffers_are_due_ && options_.sync_buffers)
    buffers_from(join_ ? common_rank(true) : 0);
  auto all_have_data = !join_ || announce_sync();
  if (comparison_ != comparison::none && all_have_data && learns && *sync_) {
    compare_if_stepped();
    if (comparison_ == comparison::after_next_forward) {
      comparison_ = comparison::after_a_step;
      // The module may throw, and this rank alone come here again.
      sink_->backward = backward_state::none;
    }
  }
}

bool distributed_data_parallel::looks_at_outputs() const {
  if (options_.static_graph)
    return *sync_ && at::GradMode::is_enabled();
  return options_.find_unused_parameters && at::GradMode::is_enabled();
}

void distributed_data_parallel::after_forward(
  const std::vector<at::Tensor*>& outputs, bool known) {
  auto learns = at::GradMode::is_enabled();
  if (join_ && !learns)
    return;
  if (!known)
    throw_invalid_argument(
      "rank ", group_->getRank(),
      ": the forward's output has a type whose tensors are not known; "
      "give it a function `for_each_tensor(output&, f)` beside it");
  buffers_are_due_ = learns && *sync_;
  if (learns)
    kept_to_itself_ = !*sync_;
  if (learns && *sync_) {
    ++sink_->forwards;
    sink_->backward = backward_state::none;
    sink_->delay_queued = false;
    std::vector<at::Tensor> tensors;
    if (options_.find_unused_parameters && !options_.static_graph)
      for (auto x : outputs)
        tensors.push_back(*x);
    on_rank([&] { reducer_->prepare_for_backward(tensors); });
  }
  if (looks_at_outputs())
    pass_through_sink(outputs, sink_);
}

} // namespace troupe::internal
