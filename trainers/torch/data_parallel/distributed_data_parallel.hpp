#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "troupe/trainers/torch/data_parallel/data_parallel_options.hpp"
#include "troupe/trainers/torch/data_parallel/model_tensors.hpp"

namespace c10d {
class Logger;
class Reducer;
} // namespace c10d

namespace troupe {
class train_context;
} // namespace troupe

namespace troupe::internal {

class kept_gradients;
struct gradient_sink_state;

/// While it exists, gradients stay on this rank and accumulate: for all but the
/// last of several small batches. It must enclose both forward and backward.
class [[nodiscard]] no_sync_guard {
public:
  explicit no_sync_guard(bool& sync)
    : sync_(&sync), before_(std::exchange(sync, false)) {}
  no_sync_guard(no_sync_guard&& other) noexcept
    : sync_(std::exchange(other.sync_, nullptr)), before_(other.before_) {}
  ~no_sync_guard() {
    if (sync_)
      *sync_ = before_;
  }

  no_sync_guard& operator=(no_sync_guard&&) = delete;

private:
  bool* sync_;
  bool before_;
};

/// Keeps the copies of one model on the ranks of a group equal: averages
/// gradients during backward, bucket by bucket, and broadcasts buffers before
/// forward. Knows tensors only; `data_parallel_model` puts a module on top.
///
/// Construction, `forward`, the backward of its output, `join` and
/// `broadcast_buffers` are collectives: every rank makes the same calls in the
/// same order. Without a group, or with one of a single rank, it does nothing.
///
/// A backward whose gradients would not be averaged throws, unless a `no_sync`
/// guard exists. An example is a backward after the module's own forward
/// instead of `forward` of this object.
///
/// Parameters may be frozen, unfrozen, replaced and added between steps, and
/// become of another type or device, on all ranks alike: the next forward with
/// gradients averages those that require one then, and takes over rank 0's
/// parameters as construction does. So does the begin of a `join`; inside, they
/// must not change. One rank may change a type or a device alone if it changes
/// that back before its next forward, `join`, `check_replicas` or
/// `broadcast_buffers`. A narrower type rounds its weights: then reports are
/// refused until `check_replicas` passes. A parameter with a gradient that
/// `no_sync` kept must not be frozen. All ranks refuse a change
/// together, and the next forward with gradients checks it again. If a rank
/// cannot make the Reducer for it, all ranks drop the group; one that cannot
/// make another for a static graph after a backward without averaging drops it
/// alone, since the others may have had none.
///
/// A parameter belongs to one such object: forwards of a second one whose
/// gradients are averaged throw on all ranks as long as the first one exists.
///
/// Belongs to one thread. Failures throw `train_error` (a model that cannot be
/// trained so) or what the group throws, with this rank's number added.
class distributed_data_parallel {
public:
  distributed_data_parallel(model_tensors_source source,
                            c10::intrusive_ptr<c10d::ProcessGroup> group,
                            data_parallel_options options = {});
  ~distributed_data_parallel();

  distributed_data_parallel(const distributed_data_parallel&) = delete;
  distributed_data_parallel&
  operator=(const distributed_data_parallel&) = delete;

  /// Calls *f*, the model's forward, and returns its output.
  template <class F>
  auto forward(F&& f) {
    before_forward();
    auto output = std::forward<F>(f)();
    after_forward(output);
    return output;
  }

  /// Gradients of forwards while the guard exists are not averaged. Between two
  /// forwards whose gradients are, either all ranks make such forwards or none
  /// does; in a `join`, all ranks make the same ones.
  no_sync_guard no_sync() { return no_sync_guard{*sync_}; }

  /// Runs *body*, this rank's steps, then takes part in the steps of the others
  /// until all are done: ranks may have different numbers of batches.
  /// Afterwards all have the model of a rank with the most steps. The state of
  /// optimizers is not copied: if ranks had different numbers of steps, create
  /// a new optimizer on all ranks if it has momentum, moments or a step count,
  /// or copy its state from one. Otherwise their next steps differ, and the
  /// second forward for which all ranks have data throws, see
  /// `data_parallel_options::check_after_copy`. Inside, forwards without
  /// gradients do not communicate.
  template <class F>
  void join(F&& body, join_options options = {}) {
    begin_join(options);
    join_scope scope{*this};
    std::forward<F>(body)();
    finish_join();
  }

  /// Rank 0's buffers on all ranks: before saving or evaluating, since they
  /// differ after a step until the next forward.
  void broadcast_buffers();

  /// Clears the gradients of all parameters, frozen ones too. After a backward
  /// that failed, forwards may throw all the same: then this object averages
  /// no gradients any more.
  void zero_grad();

  /// Throws `train_error` if gradients arrived since the last forward that were
  /// not averaged: backward gave some parameters none, and so the Reducer still
  /// waits for them; or backward failed or was refused and its gradients were
  /// not cleared; or parameters that were unfrozen since got a gradient, of the
  /// module's own forward, that was not cleared; or weights were stepped with
  /// such gradients or those that `no_sync` kept on this rank, or were rounded.
  void check_backward() const;

  /// Throws `train_error` on every rank if the parameters of one differ from
  /// those of rank 0 in a bit. A collective that reads all parameters once.
  /// `epoch_loop` calls it at the end of each epoch, and a forward after a step
  /// with gradients of `no_sync`, or after the first step since a `join` of
  /// ranks with different numbers of steps: the latter not with a `comm_hook`
  /// or without `check_after_copy`.
  void check_replicas();

  /// Calls `check_backward` at the start of reports and checkpoints of
  /// *context*: no run stores weights that were stepped with such gradients.
  void check_at_reports(train_context& context);

  /// Releases the group at once, without notifying the other ranks, such as
  /// after a failure. From then on, a forward and a check are errors.
  void drop();

  /// Whether gradients are averaged: there is a group of more than one rank.
  bool active() const noexcept { return reducer_ != nullptr; }

private:
  /// When weights are compared, because optimizers may differ although weights
  /// were copied: then their first averaged step makes weights differ.
  enum class comparison : std::uint8_t {
    none,
    after_next_forward, ///< None has been averaged yet.
    after_a_step,       ///< At a forward that follows an averaged backward.
  };

  /// Ends a join also when its body throws.
  struct join_scope {
    distributed_data_parallel& ddp;
    ~join_scope() { ddp.end_join(); }
  };

  template <class Output>
  void after_forward(Output& output) {
    if (!active())
      return;
    if (!looks_at_outputs())
      return after_forward(std::vector<at::Tensor*>{}, true);
    std::vector<at::Tensor*> found;
    if constexpr (std::is_same_v<Output, c10::IValue>) {
      std::vector<at::Tensor> tensors;
      replace_tensors(output, [&tensors](at::Tensor x) {
        tensors.push_back(x);
        return x;
      });
      for (auto& x : tensors)
        found.push_back(&x);
      after_forward(found, true);
      auto next = tensors.begin();
      replace_tensors(output, [&next](const at::Tensor&) { return *next++; });
    } else {
      auto known = find_tensors(output, found);
      after_forward(found, known);
    }
  }

  /// A parameter of the model that was averaged, but is not any more.
  struct left_parameter {
    at::Tensor tensor;
    std::shared_ptr<bool> got_gradient; // since then
    std::shared_ptr<void> notes;        // keeps noting that
  };

  /// Calls *f*; an error of LibTorch leaves with this rank's number in it.
  template <class F>
  void on_rank(F&& f) {
    try {
      f();
    } catch (c10::Error& e) {
      e.add_context(
        c10::str("on rank ", group_->getRank(), " of ", group_->getSize()));
      throw;
    }
  }

  /// Also drops the group if *f* throws and leaves no Reducer: then backward
  /// would not average and not be refused.
  template <class F>
  void with_reducer(F&& f) {
    try {
      on_rank(f);
    } catch (...) {
      if (!reducer_)
        drop();
      throw;
    }
  }

  void start(bool with_parameters, bool with_buffers);
  void agree(const std::string& problem);
  void copy_from(int rank, const model_tensors& model, bool parameters,
                 bool buffers);
  std::vector<at::Tensor> one_number(std::int64_t value) const;
  std::int64_t all_reduce(std::int64_t value, c10d::ReduceOp::RedOpType op);
  std::int64_t all_reduce(std::vector<at::Tensor>& x,
                          c10d::ReduceOp::RedOpType op);
  void replace_reducer(const std::function<void()>& make);
  void make_reducer();
  void note_left(const model_tensors& model,
                 const std::vector<named_tensor>& before);
  void compare_replicas(bool finds_optimizers = false);
  void compare_if_stepped();
  void follow_parameters();
  void refuse_other_owners();
  void refuse_if_dropped() const;
  std::vector<c10::TensorImpl*> trained_now() const;
  std::string learns_unfollowed() const;
  void before_forward();
  void prepare_forward(bool learns);
  bool looks_at_outputs() const;
  void after_forward(const std::vector<at::Tensor*>& outputs, bool known);
  void buffers_from(int rank);

  void begin_join(join_options options);
  void finish_join();
  void end_join() noexcept;
  void announce_data();
  bool announce_sync();
  bool shadow_step();
  int common_rank(bool candidate);

  model_tensors_source source_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  data_parallel_options options_;
  /// The parameters that required a gradient when forwards looked last.
  std::vector<c10::TensorImpl*> trained_;
  /// The model's name.
  std::string model_;
  /// The parameters whose gradients the group averages.
  std::vector<named_tensor> reduced_;
  std::vector<left_parameter> left_;
  at::Device device_{at::kCPU};
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
  std::shared_ptr<gradient_sink_state> sink_;
  /// Outlives the Reducers, which add to it one after the other.
  const std::shared_ptr<kept_gradients> kept_;
  const std::shared_ptr<bool> sync_ = std::make_shared<bool>(true);
  /// The last forward with gradients was one of `no_sync`, on all ranks: the
  /// next averaged one asks whether weights were stepped with them. Set by
  /// `after_forward`; cleared there, and at the end of a join, after which
  /// ranks may differ.
  bool kept_to_itself_ = false;
  /// The same on all ranks.
  comparison comparison_ = comparison::none;
  /// The next averaged forward looks for other owners of the parameters. Set by
  /// `start` and cleared by `refuse_other_owners`, on all ranks alike.
  bool owners_are_due_ = false;
  /// The next forward broadcasts buffers: it is the first, or the one before it
  /// was averaged. Set by `after_forward`, and by `shadow_step` on a rank
  /// without data.
  bool buffers_are_due_ = true;
  /// `start` did not come to its end, which it does on all ranks or on none:
  /// the next forward with gradients calls it again.
  bool starts_again_ = false;
  /// `drop` released the group.
  bool dropped_ = false;
  std::optional<join_options> join_;
  /// Keeps `check_backward` among the checks at reports.
  std::shared_ptr<void> at_reports_;
};

} // namespace troupe::internal
