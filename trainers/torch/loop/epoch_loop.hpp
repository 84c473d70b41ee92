#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/data_parallel/data_parallel_options.hpp"
#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/loop/batch_feed.hpp"
#include "troupe/trainers/torch/loop/loop_callback.hpp"
#include "troupe/trainers/torch/loop/loop_log.hpp"
#include "troupe/trainers/torch/loop/training_module.hpp"

namespace troupe {

/// How an `epoch_loop` trains. Names are Lightning's. Equal on all ranks.
struct loop_options {
  int max_epochs = 1;

  /// Batches of an epoch, of this rank. Unset: all.
  std::optional<std::int64_t> limit_train_batches = {};
  /// The same of a validation; 0 turns validation off.
  std::optional<std::int64_t> limit_val_batches = {};

  /// Epochs from one validation to the next. The last one of `max_epochs` is
  /// validated in any case: its weights are those of the run.
  int check_val_every_n_epoch = 1;

  /// Batches of validation before training, so that a mistake in it shows at
  /// once; what they log is dropped. -1: all. Not done when a run is resumed.
  std::int64_t num_sanity_val_steps = 2;

  /// Largest norm of all gradients together. Unset: they are left alone.
  std::optional<double> gradient_clip_val = {};

  /// Batches whose gradients are averaged for one step of the optimizer. The
  /// last step of an epoch may have fewer, each with the same weight.
  int accumulate_grad_batches = 1;

  /// Compares the weights of all ranks at the end of each epoch and ends the
  /// run if a bit differs: reads all of them once. Turn it off for ranks on
  /// processors of different kinds, whose kernels may round differently. Ranks
  /// with a `comm_hook` are not compared.
  bool check_replicas = true;

  /// Resume from the newest checkpoint that this fit saved in an earlier
  /// attempt. Fits of one run are told apart by their order, and by which ones
  /// before them have thrown. One that a hook of another calls never resumes.
  bool resume = true;

  /// How the module is wrapped for several ranks.
  data_parallel_options data_parallel = {};
};

class train_context;
namespace internal {
struct loop_progress;
struct rank_progress;
struct resume_point;
} // namespace internal

/// Trains a `training_module` epoch by epoch, in the manner of Lightning:
///
///   epoch_loop loop{context,
///                   {.max_epochs = 10},
///                   {std::make_shared<train_report_callback>()}};
///   loop.fit(std::make_shared<net>(), train_loader, validation_loader);
///
/// Every rank makes the same loop and calls `fit`. Belongs to the thread of the
/// train loop. docs/epoch_loop.md has the order of all hooks.
class epoch_loop {
public:
  using callback_ptr = std::shared_ptr<loop_callback>;

  /// Throws `train_error` for an option out of range.
  explicit epoch_loop(train_context& context, loop_options options = {},
                      std::vector<callback_ptr> callbacks = {});
  ~epoch_loop();

  epoch_loop(const epoch_loop&) = delete;
  epoch_loop& operator=(const epoch_loop&) = delete;

  /// Trains *module* on the batches of *train*: a loader of
  /// `prepare_data_loader`, any other range, or a function that makes one,
  /// called after `setup`. A collective: the ranks have equal numbers of
  /// batches. One without `size()`, such as a stream, allows no
  /// `accumulate_grad_batches`. Resumes from the checkpoint of
  /// `train_report_callback` (see `loop_options::resume`) as if there had been
  /// no break. Trains no epoch if a later fit of the run has saved one, unless
  /// the later one was tried because this one had thrown. Throws what steps and
  /// hooks throw, and `train_error` for what cannot work.
  template <class Module, class Train>
  void fit(std::shared_ptr<Module> module, Train&& train) {
    internal::train_feed<Module, Train> feed{module,
                                             std::forward<Train>(train)};
    fit_feeds(std::move(module), feed, nullptr);
  }

  /// The same with validation; ranks may have different numbers of batches of
  /// *validation*.
  template <class Module, class Train, class Validation>
  void fit(std::shared_ptr<Module> module, Train&& train,
           Validation&& validation) {
    internal::train_feed<Module, Train> feed{module,
                                             std::forward<Train>(train)};
    internal::validation_feed<Module, Validation> other{
      module, std::forward<Validation>(validation)};
    fit_feeds(std::move(module), feed, &other);
  }

  train_context& context() const noexcept { return context_; }
  const loop_options& options() const noexcept { return options_; }

  /// Epochs that were finished before the current one.
  int current_epoch() const noexcept { return epoch_; }
  /// Steps of the optimizer so far, over all epochs and attempts.
  std::int64_t global_step() const noexcept { return global_step_; }
  /// Whether this is the validation before training.
  bool sanity_checking() const noexcept { return sanity_checking_; }

  /// The module and the optimizer of the fit under way; after it those of the
  /// last one.
  loop_module& module() const { return *module_; }
  loop_optimizer& optimizer() noexcept { return optimizer_; }

  /// The latest value of all that was logged in this fit, by name. Waits for
  /// the device.
  metrics callback_metrics() const { return log_.values(); }

  /// The same of what was logged in the current epoch.
  metrics epoch_metrics() const { return log_.values_of_epoch(); }

  /// See `loop_module::log`.
  void log(const std::string& name, const at::Tensor& value,
           const log_options& options = {}) {
    log_.add(context_, name, value, options);
  }
  void log(const std::string& name, double value,
           const log_options& options = {});

  /// Ends the fit after this epoch, on all ranks if any asks.
  void stop() noexcept { stopping_ = true; }
  bool stopping() const noexcept { return stopping_; }

  /// Writes all that a resumed fit needs into *folder*: the model's tensors and
  /// the loop's state by rank 0; logged values, random numbers and what
  /// `loop_options::data_parallel` leaves to each rank by every rank. For
  /// callbacks of `callback_phase::checkpoint`, in `on_train_epoch_end`, on
  /// every rank; elsewhere it throws `train_error`.
  void save_checkpoint(const fs::path& folder);

private:
  void fit_feeds(std::shared_ptr<loop_module> module,
                 internal::batch_feed& train, internal::batch_feed* validation);
  void run(internal::batch_feed& train, internal::batch_feed* validation);
  void prepare(internal::batch_feed& train, internal::batch_feed* validation);
  void gather_callbacks();
  void check_order(internal::batch_feed& feed, const char* use);
  void check_batches(internal::batch_feed& train);
  void check_optimizer() const;
  void check_state_keys() const;
  void restore_module(const fs::path& folder,
                      const internal::loop_progress& saved,
                      const internal::rank_progress& mine);
  internal::rank_progress my_progress() const;
  void restore_progress(const internal::loop_progress& saved,
                        const internal::rank_progress& mine);
  void restore_lr(const internal::loop_progress& saved);
  void end_early(const internal::resume_point& from,
                 const std::optional<internal::loop_progress>& saved);
  void sanity_check(internal::batch_feed& validation);
  void train_epoch(internal::batch_feed& train,
                   internal::batch_feed* validation);
  void train_batch(internal::batch_feed& train, std::int64_t index,
                   std::optional<std::int64_t> batches);
  at::Tensor backward(internal::batch_feed& train, std::int64_t index,
                      bool is_first, bool is_last);
  void step();
  void end_train_epoch();
  void validate(internal::batch_feed& validation,
                std::optional<std::int64_t> limit);
  void agree_on_stop();
  void call_on_exception(const std::exception_ptr& what) noexcept;

  /// Calls *hook* of every callback.
  template <class... Params, class... Args>
  void call(void (loop_callback::*hook)(epoch_loop&, Params...),
            Args&&... args) {
    for (auto& x : active_)
      ((*x).*hook)(*this, args...);
  }
  void call_epoch_end(callback_phase phase);

  train_context& context_;
  const loop_options options_;
  const std::vector<callback_ptr> callbacks_;

  // Of one fit.
  std::vector<callback_ptr> active_; // with those of the module
  std::shared_ptr<loop_module> module_;
  std::optional<data_parallel_model<loop_module>> model_;
  loop_optimizer optimizer_;
  internal::loop_log log_;
  int number_ = 0; // among the fits of the train function; -1: inside another
  int epoch_ = 0;
  std::int64_t global_step_ = 0;
  bool sanity_checking_ = false;
  bool stopping_ = false;
  bool epoch_is_over_ = false;
};

} // namespace troupe
