#include "troupe/trainers/torch/loop/epoch_loop.hpp"

#include <algorithm>
#include <cstdio>
#include <typeinfo>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>

#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/loop/loop_progress.hpp"
#include "troupe/trainers/torch/optim/clip_grad_norm.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

namespace {

void check(const loop_options& x) {
  require_at_least(0, x.max_epochs, "loop_options::max_epochs");
  require_at_least(1, x.limit_train_batches.value_or(1),
                   "loop_options::limit_train_batches");
  require_at_least(0, x.limit_val_batches.value_or(0),
                   "loop_options::limit_val_batches");
  require_at_least(1, x.check_val_every_n_epoch,
                   "loop_options::check_val_every_n_epoch");
  require_at_least(-1, x.num_sanity_val_steps,
                   "loop_options::num_sanity_val_steps");
  require_at_least(1, x.accumulate_grad_batches,
                   "loop_options::accumulate_grad_batches");
  if (x.gradient_clip_val && !(*x.gradient_clip_val > 0))
    throw_invalid_argument("loop_options::gradient_clip_val is ",
                           *x.gradient_clip_val, ", but must be positive");
}

std::int64_t limited(std::int64_t n, std::optional<std::int64_t> limit) {
  return limit ? std::min(n, *limit) : n;
}

/// As long as it exists, a module is in evaluation mode and nothing has
/// gradients. Afterwards each of its parts is in the mode in which it was: a
/// user may have frozen some.
class evaluation_mode {
public:
  explicit evaluation_mode(torch::nn::Module& module) {
    for (auto& x : module.modules())
      before_.emplace_back(x, x->is_training());
    module.eval();
  }

  ~evaluation_mode() {
    // A parent comes before its parts and sets theirs too.
    for (auto& [module, training] : before_)
      module->train(training);
  }

  evaluation_mode(const evaluation_mode&) = delete;
  evaluation_mode& operator=(const evaluation_mode&) = delete;

private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> before_;
  c10::NoGradGuard no_grad_;
};

/// One walk through the batches of an epoch, ended also by an exception.
class pass {
public:
  pass(batch_feed& feed, int epoch) : feed_(feed) {
    feed_.begin(static_cast<std::uint64_t>(epoch));
  }
  ~pass() { feed_.end(); }
  pass(const pass&) = delete;
  pass& operator=(const pass&) = delete;

private:
  batch_feed& feed_;
};

} // namespace

epoch_loop::epoch_loop(train_context& context, loop_options options,
                       std::vector<callback_ptr> callbacks)
  : context_(context), options_(std::move(options)),
    callbacks_(std::move(callbacks)) {
  check(options_);
}

epoch_loop::~epoch_loop() = default;

void epoch_loop::log(const std::string& name, double value,
                     const log_options& options) {
  log(name, at::scalar_tensor(value, at::kDouble), options);
}

void epoch_loop::fit_feeds(std::shared_ptr<loop_module> module,
                           batch_feed& train, batch_feed* validation) {
  if (!module)
    throw_invalid_argument("fit() was given no module");
  auto plane = data_plane(context_);
  auto is_inner = std::exchange(plane->is_fitting, true);
  number_ = is_inner ? -1 : plane->loops++;
  module_ = std::move(module);
  optimizer_ = {};
  log_ = {};
  epoch_ = 0;
  global_step_ = 0;
  stopping_ = false;
  module_->loop_ = this;
  auto leave = [this, &plane, is_inner] {
    plane->is_fitting = is_inner;
    module_->loop_ = nullptr;
    model_.reset();
    sanity_checking_ = false;
    epoch_is_over_ = false;
  };
  try {
    run(train, options_.limit_val_batches == 0 ? nullptr : validation);
  } catch (...) {
    call_on_exception(std::current_exception());
    leave();
    // The next one may be what the train function tries instead.
    if (!is_inner)
      plane->failed_loops.push_back(number_);
    throw;
  }
  leave();
}

void epoch_loop::run(batch_feed& train, batch_feed* validation) {
  prepare(train, validation);
  resume_point from;
  if (options_.resume && number_ >= 0)
    from =
      find_resume_point(context_, number_, data_plane(context_)->failed_loops);
  std::optional<loop_progress> saved;
  rank_progress mine;
  if (!from.folder.empty())
    saved = read_progress(from.folder);
  if (saved) {
    mine = read_rank_progress(from.folder, context_.rank());
    restore_module(from.folder, *saved, mine);
  }
  optimizer_ = module_->configure_optimizers();
  if (!optimizer_)
    throw_invalid_argument("configure_optimizers of module " + module_->name()
                           + " returned no optimizer");
  check_optimizer();
  optimizer_.follow_schedule(schedule_interval::epoch, 0);
  optimizer_.follow_schedule(schedule_interval::step, 0);
  call(&loop_callback::on_fit_start);
  module_->on_fit_start();
  if (saved)
    restore_progress(*saved, mine);
  else if (validation && options_.num_sanity_val_steps != 0 && !from.is_over)
    sanity_check(*validation);
  if (from.is_over)
    end_early(from, saved);
  call(&loop_callback::on_train_start);
  module_->on_train_start();
  check_state_keys();
  // Hooks up to here may have drawn numbers that the run did not draw at this
  // point of its first attempt.
  set_random_state(mine.random, device(context_));
  auto continues = [this] {
    // A run that is preempted says so with the same report on every rank.
    return epoch_ < options_.max_epochs && !stopping_
           && !context_.stop_requested();
  };
  for (; continues(); ++epoch_)
    train_epoch(train, validation);
  call(&loop_callback::on_train_end);
  module_->on_train_end();
  call(&loop_callback::on_fit_end);
  module_->on_fit_end();
  call(&loop_callback::teardown);
  module_->teardown();
}

void epoch_loop::prepare(batch_feed& train, batch_feed* validation) {
  gather_callbacks();
  if (context_.local_rank() == 0)
    module_->prepare_data();
  context_.barrier();
  call(&loop_callback::setup);
  module_->setup();
  train.open();
  if (validation)
    validation->open();
  check_order(train, "training");
  if (validation)
    check_order(*validation, "validation");
  check_batches(train);
  module_->configure_model();
  model_.emplace(prepare_model(context_, module_, options_.data_parallel));
}

void epoch_loop::gather_callbacks() {
  auto all = callbacks_;
  for (auto& x : module_->configure_callbacks())
    all.push_back(std::move(x));
  if (std::ranges::find(all, nullptr) != all.end())
    throw_invalid_argument("a callback of the loop is null");
  active_ = std::move(all);
  std::ranges::stable_partition(active_, [](const callback_ptr& x) {
    return x->phase() != callback_phase::checkpoint;
  });
}

/// Ranks with different seeds see some samples twice and others not.
void epoch_loop::check_order(batch_feed& feed, const char* use) {
  if (context_.world_size() == 1)
    return;
  auto mine = feed.divides().value_or(divided_order{});
  auto first = context_.broadcast_from_rank_zero(mine);
  auto text = [](const divided_order& x) {
    return x.shards > 0
             ? c10::str(x.shards, " shards of a stream with seed ", x.seed)
             : c10::str(x.samples, " samples in the order of seed ", x.seed);
  };
  if (first != mine)
    throw_invalid_argument(
      "rank ", context_.rank(), ": the loader for ", use, " divides ",
      text(mine), ", but rank 0's ", text(first),
      ": give all ranks the same data and the same seed in its options");
}

void epoch_loop::check_batches(batch_feed& train) {
  auto size = train.size();
  if (!size && options_.accumulate_grad_batches > 1)
    throw_invalid_argument(
      "accumulate_grad_batches is ", options_.accumulate_grad_batches,
      ", but the loader for training does not know how many batches it has: "
      "give the loop larger batches instead");
  if (!size) // Its ranks agree on each step.
    return;
  auto mine = limited(*size, options_.limit_train_batches);
  if (mine < 1)
    throw_invalid_argument("rank ", context_.rank(),
                           ": the loader for training has no batches");
  if (context_.world_size() == 1)
    return;
  if (auto first = context_.broadcast_from_rank_zero(mine); first != mine)
    throw_invalid_argument("rank ", context_.rank(), " has ", mine,
                           " batches for training but rank 0 has ", first,
                           ": ranks train in step, so give them equal numbers "
                           "(troupe::tail::pad or drop_last)");
}

void epoch_loop::check_optimizer() const {
  auto known = model_->parameters();
  for (auto& x : optimizer_.parameters())
    if (std::ranges::none_of(known, [&](auto& y) { return y.is_same(x); }))
      throw_invalid_argument(
        "the optimizer has a parameter that module " + module_->name()
        + " does not have: its gradients would not be averaged, and no "
          "checkpoint would hold it; give it to register_parameter");
}

void epoch_loop::sanity_check(batch_feed& validation) {
  sanity_checking_ = true;
  auto random = random_state(device(context_));
  call(&loop_callback::on_sanity_check_start);
  auto limit = options_.limit_val_batches;
  if (options_.num_sanity_val_steps > 0)
    limit = limited(options_.num_sanity_val_steps, limit);
  validate(validation, limit);
  call(&loop_callback::on_sanity_check_end);
  set_random_state(random, device(context_));
  log_ = {};
  sanity_checking_ = false;
}

void epoch_loop::train_epoch(batch_feed& train, batch_feed* validation) {
  log_.begin_training();
  call(&loop_callback::on_train_epoch_start);
  module_->on_train_epoch_start();
  {
    const pass batches{train, epoch_};
    auto size = train.size();
    auto n = size ? limited(*size, options_.limit_train_batches)
                  : options_.limit_train_batches;
    std::int64_t i = 0;
    for (; !n || i < *n; ++i) {
      if (!train.next()) {
        if (!size)
          break;
        throw_invalid_argument("the loader for training said that it has ",
                               *size, " batches, but gave ", i);
      }
      train_batch(train, i, size ? n : std::nullopt);
    }
    if (i == 0)
      throw_invalid_argument("rank ", context_.rank(),
                             ": the loader for training has no batches in "
                             "epoch ",
                             epoch_);
    if (!size)
      optimizer_.follow_schedule(schedule_interval::epoch, epoch_ + 1);
  }
  auto finished = epoch_ + 1;
  if (validation
      && (finished % options_.check_val_every_n_epoch == 0
          || finished == options_.max_epochs))
    validate(*validation, options_.limit_val_batches);
  end_train_epoch();
}

void epoch_loop::train_batch(batch_feed& train, std::int64_t index,
                             std::optional<std::int64_t> batches) {
  auto window = options_.accumulate_grad_batches;
  auto ends_epoch = batches && index + 1 == *batches;
  auto is_last = (index + 1) % window == 0 || ends_epoch;
  train.transfer(device(context_));
  log_.begin_batch(train.samples());
  call(&loop_callback::on_train_batch_start, index);
  train.batch_start(index);
  auto loss = backward(train, index, index % window == 0, is_last);
  if (is_last)
    step();
  if (ends_epoch)
    optimizer_.follow_schedule(schedule_interval::epoch, epoch_ + 1);
  call(&loop_callback::on_train_batch_end, loss, index);
  train.batch_end(loss, index);
  log_.end_batch();
}

at::Tensor epoch_loop::backward(batch_feed& train, std::int64_t index,
                                bool is_first, bool is_last) {
  // Gradients travel once for all batches of a step.
  std::optional<no_sync_guard> alone;
  if (!is_last)
    alone.emplace(model_->no_sync());
  auto loss = model_access::ddp(*model_).forward([&] {
    auto x = train.step(index);
    if (!x.defined() || x.numel() != 1 || !x.requires_grad())
      throw_invalid_argument(
        "training_step of module ", module_->name(),
        " returned no loss for batch ", index,
        ": it must be one number that depends on the parameters");
    return x;
  });
  auto result = loss.detach();
  if (options_.accumulate_grad_batches > 1)
    loss = loss / options_.accumulate_grad_batches;
  if (is_first) {
    call(&loop_callback::on_before_zero_grad, optimizer_);
    module_->on_before_zero_grad(optimizer_);
    module_->zero_grad();
  }
  call(&loop_callback::on_before_backward, loss);
  module_->on_before_backward(loss);
  loss.backward();
  call(&loop_callback::on_after_backward);
  module_->on_after_backward();
  return result;
}

void epoch_loop::step() {
  call(&loop_callback::on_before_optimizer_step, optimizer_);
  module_->on_before_optimizer_step(optimizer_);
  if (options_.gradient_clip_val)
    clip_grad_norm(optimizer_.parameters(), *options_.gradient_clip_val);
  optimizer_.step();
  ++global_step_;
  optimizer_.follow_schedule(schedule_interval::step, global_step_);
}

void epoch_loop::end_train_epoch() {
  log_.end_epoch(context_);
  call_epoch_end(callback_phase::usual);
  module_->on_train_epoch_end();
  call_epoch_end(callback_phase::monitor);
  // Before it is saved. A hook of the user may leave ranks different.
  if (options_.check_replicas && !options_.data_parallel.comm_hook)
    model_->check_replicas();
  agree_on_stop();
  epoch_is_over_ = true;
  call_epoch_end(callback_phase::checkpoint);
  epoch_is_over_ = false;
  agree_on_stop();
  log_.end_training();
}

void epoch_loop::call_epoch_end(callback_phase phase) {
  for (auto& x : active_)
    if (x->phase() == phase)
      x->on_train_epoch_end(*this);
}

void epoch_loop::validate(batch_feed& validation,
                          std::optional<std::int64_t> limit) {
  if (options_.data_parallel.sync_buffers)
    model_->broadcast_buffers(); // all ranks judge one model
  const evaluation_mode evaluation{*module_};
  log_.begin_validation();
  call(&loop_callback::on_validation_start);
  module_->on_validation_start();
  call(&loop_callback::on_validation_epoch_start);
  module_->on_validation_epoch_start();
  {
    const pass batches{validation, epoch_};
    for (std::int64_t i = 0; (!limit || i < *limit) && validation.next(); ++i) {
      validation.transfer(device(context_));
      log_.begin_batch(validation.samples());
      call(&loop_callback::on_validation_batch_start, i);
      validation.batch_start(i);
      validation.step(i);
      call(&loop_callback::on_validation_batch_end, i);
      validation.batch_end({}, i);
      log_.end_batch();
    }
  }
  log_.end_epoch(context_);
  call(&loop_callback::on_validation_epoch_end);
  module_->on_validation_epoch_end();
  call(&loop_callback::on_validation_end);
  module_->on_validation_end();
  log_.end_validation(!sanity_checking_);
}

void epoch_loop::agree_on_stop() {
  auto asked = at::scalar_tensor(
    stopping_ ? 1 : 0,
    at::TensorOptions{}.dtype(at::kFloat).device(device(context_)));
  stopping_ = all_reduce(context_, asked, reduce_op::max).item().toBool();
}

void epoch_loop::call_on_exception(const std::exception_ptr& what) noexcept {
  // The fit ends by what happened first: what a hook throws now is only said.
  auto say = [this](const loop_callback& x, const char* why) {
    std::fprintf(stderr, "rank %d: on_exception of %s failed: %s\n",
                 context_.rank(), c10::demangle(typeid(x).name()).c_str(), why);
  };
  for (auto& x : active_) {
    try {
      x->on_exception(*this, what);
    } catch (const std::exception& e) {
      say(*x, e.what());
    } catch (...) {
      say(*x, "it threw something that is not a std::exception");
    }
  }
}

} // namespace troupe
