#include <cstdio>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/files/safetensors.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/loop/epoch_loop.hpp"
#include "troupe/trainers/torch/loop/loop_progress.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"
#include "troupe/trainers/train_context.hpp"

// How an `epoch_loop` saves what a resumed fit needs, and takes it up again.
namespace troupe {

using namespace internal;

namespace {

/// Such as "0.1, 0.05".
std::string listed(const std::vector<double>& numbers) {
  std::string result;
  for (auto x : numbers) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", x);
    result += (result.empty() ? "" : ", ") + std::string{text};
  }
  return result;
}

fs::path model_file(const fs::path& folder) {
  return folder / "model.safetensors";
}

/// The tensors of *module* that ranks do not share under *options*.
tensor_map own_tensors(const loop_module& module,
                       const data_parallel_options& options) {
  auto model = tensors_of(module);
  tensor_map result;
  for (auto& name : options.ignored)
    for (auto* list : {&model.parameters, &model.buffers})
      for (auto& x : *list)
        if (x.name == name)
          result[name] = x.tensor;
  if (!options.sync_buffers)
    for (auto& x : model.buffers)
      result[x.name] = x.tensor;
  return result;
}

[[noreturn]] void refuse_key(const std::string& key) {
  throw_invalid_argument("two callbacks have the state key '" + key
                         + "': override state_key() in one of them");
}

} // namespace

/// Refuses callbacks whose states no checkpoint can hold, before an epoch is
/// spent. Callbacks that save come last.
void epoch_loop::check_state_keys() const {
  if (active_.empty() || active_.back()->phase() != callback_phase::checkpoint)
    return;
  for (auto x = active_.begin(); x != active_.end(); ++x)
    for (auto y = active_.begin(); y != x; ++y)
      if (auto key = (*x)->state_key(); key == (*y)->state_key()
                                        && !(*x)->state_dict().empty()
                                        && !(*y)->state_dict().empty())
        refuse_key(key);
}

void epoch_loop::restore_module(const fs::path& folder,
                                const loop_progress& saved,
                                const rank_progress& mine) {
  module_->on_load_checkpoint(saved.added);
  load_safetensors(model_file(folder), *model_);
  // What this rank did not save is as rank 0 has it.
  load_into(mine.model, own_tensors(*module_, options_.data_parallel),
            {.strict = false});
  call(&loop_callback::on_load_checkpoint, saved.added);
  for (auto& x : active_)
    if (auto i = saved.callbacks.find(x->state_key());
        i != saved.callbacks.end())
      x->load_state_dict(i->second);
}

void epoch_loop::restore_progress(const loop_progress& saved,
                                  const rank_progress& mine) {
  optimizer_.load_state(mine.optimizer.empty() ? saved.optimizer
                                               : mine.optimizer);
  epoch_ = saved.finished_epochs;
  global_step_ = saved.global_step;
  stopping_ = saved.stopping;
  log_.restore(mine.logged);
  restore_lr(saved);
  // In a run without a break, too, what a hook set counts until the schedule
  // advances. The state of an optimizer of this rank alone has it already.
  if (!saved.own_lr.empty()
      && (mine.optimizer.empty() || optimizer_.schedule().factor))
    optimizer_.own_lr(saved.own_lr);
}

void epoch_loop::restore_lr(const loop_progress& saved) {
  if (auto& first = saved.first_lr; !first.empty()) {
    if (context_.rank() == 0 && first != optimizer_.first_lr())
      std::fprintf(stderr,
                   "troupe: rank 0: the loop resumes with the learning rate %s "
                   "that its run began with, not with %s as "
                   "configure_optimizers says\n",
                   listed(first).c_str(),
                   listed(optimizer_.first_lr()).c_str());
    optimizer_.first_lr(first);
  }
  // The program's factor counts at once, too, if it is another one.
  optimizer_.follow_schedule(schedule_interval::epoch, epoch_);
  optimizer_.follow_schedule(schedule_interval::step, global_step_);
}

/// A later fit has begun, and so this one had ended: it only gives its module
/// back.
void epoch_loop::end_early(const resume_point& from,
                           const std::optional<loop_progress>& saved) {
  auto is_last =
    saved && (saved->stopping || saved->finished_epochs >= options_.max_epochs);
  stopping_ = true;
  if (is_last || context_.rank() != 0)
    return;
  auto weights = saved
                   ? concat("those of epoch ", saved->finished_epochs - 1,
                            ", in ", fs::path{from.folder}.filename().string())
                   : std::string{"those that it begins with"};
  rank_access{context_}.log(
    {warning_kind,
     {{"text", concat("fit ", number_,
                      " of the train function had ended, as a later one has "
                      "saved checkpoints, but no checkpoint of its last epoch "
                      "is left: the weights of its module are ",
                      weights)}}});
}

rank_progress epoch_loop::my_progress() const {
  rank_progress result{.random = random_state(device(context_)),
                       .logged = callback_metrics(),
                       .model = {},
                       .optimizer = {}};
  if (context_.rank() == 0)
    return result;
  result.model = own_tensors(*module_, options_.data_parallel);
  // A custom optimizer may name its state as it likes: all of it or nothing.
  if (!options_.data_parallel.ignored.empty())
    result.optimizer = optimizer_.state();
  return result;
}

void epoch_loop::save_checkpoint(const fs::path& folder) {
  if (!epoch_is_over_)
    throw_invalid_argument(
      "save_checkpoint() is called in the middle of an epoch, from where "
      "no loop can resume");
  loop_progress x{.loop = number_,
                  .finished_epochs = epoch_ + 1,
                  .global_step = global_step_,
                  .stopping = stopping_,
                  .callbacks = {},
                  .added = {},
                  .optimizer = optimizer_.state(),
                  .first_lr = optimizer_.first_lr(),
                  .own_lr = optimizer_.own_lr(),
                  .failed = data_plane(context_)->failed_loops};
  for (auto& callback : active_)
    if (auto state = callback->state_dict(); !state.empty())
      if (auto key = callback->state_key();
          !x.callbacks.emplace(key, std::move(state)).second)
        refuse_key(key);
  for (auto& callback : active_)
    callback->on_save_checkpoint(*this, x.added);
  module_->on_save_checkpoint(x.added);
  write_rank_progress(folder, context_.rank(), my_progress());
  if (context_.rank() != 0)
    return;
  save_safetensors(model_file(folder), *model_);
  write_progress(folder, x);
}

} // namespace troupe
