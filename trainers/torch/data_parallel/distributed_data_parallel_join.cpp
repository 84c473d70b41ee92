#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "troupe/trainers/torch/data_parallel/distributed_data_parallel.hpp"
#include "troupe/trainers/torch/data_parallel/gradient_sink.hpp"
#include "troupe/trainers/torch/data_parallel/kept_gradients.hpp"
#include "troupe/trainers/torch/data_parallel/reducer_factory.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

// Uneven inputs.
//
// A rank without data repeats every collective of a step of the others:
//
//   with data (forward, backward)        without (shadow_step)
//   announce_data: sum of ones           finish_join: sum of ones
//   rebuild_buckets                      rebuild_buckets
//   common_rank, broadcast of buffers    common_rank, broadcast of buffers
//   announce_sync: sum of ones           sum of zeros
//   one reduction per bucket             one reduction per bucket of zeros
//   sum of the map of used parameters    the same, if unused ones are looked
//                                        for in every step
//
// The first backward of a static graph sums that map before the buckets and
// learns what this rank cannot: every rank has to run it itself.
namespace troupe::internal {

void distributed_data_parallel::begin_join(join_options options) {
  if (!options.divide_by_initial_world_size
      && (options_.comm_hook
          || options_.compression != gradient_compression::none))
    throw_invalid_argument(
      "join_options::divide_by_initial_world_size is false, but what a "
      "compression or a comm_hook divides by does not follow the number of "
      "ranks that still have data: train without them, or set it to true");
  if (!active())
    return;
  if (at::GradMode::is_enabled())
    with_reducer([&] {
      internal::check_backward(*reducer_);
      follow_parameters(); // All ranks are here, and not in the forwards.
      refuse_other_owners();
    });
  join_ = options;
  logger_->set_uneven_input_join();
}

void distributed_data_parallel::end_join() noexcept {
  if (join_ && active())
    reducer_->set_forward_pass_work_handle({}, true);
  join_.reset();
  kept_to_itself_ = false; // ranks with fewer steps do not know
}

void distributed_data_parallel::announce_data() {
  std::vector<at::Tensor> one{at::ones({1}, device_)};
  reducer_->set_forward_pass_work_handle(group_->allreduce(one),
                                         join_->divide_by_initial_world_size);
}

/// Whether all ranks have data and average this step.
bool distributed_data_parallel::announce_sync() {
  return all_reduce(*sync_ ? 1 : 0, c10d::ReduceOp::SUM) == group_->getSize();
}

int distributed_data_parallel::common_rank(bool candidate) {
  return static_cast<int>(
    all_reduce(candidate ? group_->getRank() : -1, c10d::ReduceOp::MAX));
}

bool distributed_data_parallel::shadow_step() {
  std::vector<at::Tensor> others{at::zeros({1}, device_)};
  group_->allreduce(others)->wait();
  if (others[0].item<float>() == 0)
    return false;
  if (options_.static_graph && !sink_->learned)
    throw_invalid_argument(
      "rank ", group_->getRank(),
      " has no batch for the first step of a static graph, from which it "
      "would learn the graph: give every rank at least one batch, or set "
      "static_graph to false");
  reducer_->rebuild_buckets();
  if (buffers_are_due_ && options_.sync_buffers)
    buffers_from(common_rank(false));
  buffers_are_due_ = all_reduce(0, c10d::ReduceOp::SUM) > 0;
  if (!buffers_are_due_)
    return true;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> sums;
  auto buckets = reducer_->get_grad_buckets(/*return_zero_tensors*/ true);
  for (auto& bucket : buckets)
    sums.push_back(reducer_->run_comm_hook(bucket));
  for (auto& sum : sums)
    sum->waitAndThrow();
  if (options_.find_unused_parameters && !options_.static_graph) {
    std::vector<at::Tensor> used{reducer_->get_local_used_map_on_device()};
    group_->allreduce(used)->wait();
  }
  reducer_->push_rebuilt_params_for_all_indices();
  return true;
}

void distributed_data_parallel::finish_join() {
  if (!active())
    return;
  on_rank([&] {
    auto has_most_steps = true;
    while (shadow_step())
      has_most_steps = false;
    auto ranks = all_reduce(has_most_steps ? 1 : 0, c10d::ReduceOp::SUM);
    if (ranks == group_->getSize())
      compare_if_stepped(); // The copy would hide it.
    else
      comparison_ = comparison::after_next_forward;
    copy_from(common_rank(has_most_steps), source_.tensors(), true, true);
    kept_->forget_changes();
  });
}

} // namespace troupe::internal
