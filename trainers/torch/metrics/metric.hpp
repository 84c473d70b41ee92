#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "troupe/trainers/torch/data_plane.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"
#include "troupe/trainers/torch/metrics/metric_error.hpp"
#include "troupe/trainers/torch/metrics/metric_state.hpp"

namespace troupe {

/// A number over all samples of all ranks, gathered batch by batch.
///
/// A metric declares its states with `add_state` in its constructor, changes
/// them in an update, and makes its value from them in `result`. How updates
/// look is up to the classes between (`value_metric`, `prediction_metric`).
///
/// `compute` is a collective of the ranks of the train loop on the calling
/// thread, or of the group given to `synchronize_over`; outside of a loop the
/// metric is of one process. Copies are independent. Belongs to one thread.
/// Calls that cannot succeed throw `train_error`.
class metric {
public:
  virtual ~metric() = default;

  /// What people call it ("mean_squared_error"); its key in a collection.
  virtual std::string name() const = 0;

  /// Metrics with equal keys that are not empty have equal states after equal
  /// updates: a collection lets them share one. Names the kind of states and
  /// every option that they depend on.
  virtual std::string state_key() const { return {}; }

  /// The value over all samples of all ranks since the last reset, double or
  /// int64, on the device of the inputs.
  ///
  /// A collective: every rank calls it, those without samples too. What the
  /// other ranks have is forgotten again afterwards. The value is kept until
  /// any rank updates or resets; another call then costs one short meeting.
  at::Tensor compute();

  /// The only element of `compute()`.
  double value();

  /// Forgets all updates.
  void reset();

  /// Adds the states of *other*, a metric of the same kind and options.
  void merge(const metric& other);

  /// This rank's states by name, and the number of updates, for checkpoints.
  tensor_map state() const;

  /// What *x*, of `state()` of such a metric, says. Refuses other names.
  void load_state(const tensor_map& x);

  /// Moves the states; updates do so by themselves.
  void to(at::Device device);

  /// Synchronises over *plane* from now on, instead of the train loop's group.
  void synchronize_over(torch_data_plane plane);

  /// Number of updates on this rank since the last reset.
  std::int64_t updates() const noexcept { return states_->updates; }

protected:
  metric();
  metric(const metric& other);
  metric& operator=(const metric& other);

  /// Declares a state and returns its number. *initial* is its value after a
  /// reset (of cat: an empty tensor of the right type, `torch::empty({0},
  /// torch::kDouble)`). Only constructors call it.
  std::size_t add_state(std::string name, metric_reduction reduction,
                        at::Tensor initial);

  /// The value of state *number*. Assign to it; do not write into the tensor.
  at::Tensor& state(std::size_t number);
  const at::Tensor& state(std::size_t number) const;

  /// Adds *part* to the cat state *number*; copies it if it shares its memory,
  /// so that no one else writes into it later.
  void append(std::size_t number, at::Tensor part);

  /// Makes *whole* all that the cat state *number* has.
  void replace(std::size_t number, at::Tensor whole);

  /// All parts of the cat state *number* as one tensor.
  at::Tensor joined(std::size_t number) const;

  /// Where the states are: on the device of the last inputs, at first the CPU.
  at::Device state_device() const { return states_->device(); }

  /// The value of the states as they are.
  virtual at::Tensor result() const = 0;

  /// Adds the states *from* of another rank to *into*, both with at least one
  /// update. Overridden where reductions item by item are not enough.
  virtual void combine(metric_states& into, const metric_states& from) const;

  /// Adds the states of the next *batch* to *into*, both with updates. As
  /// `combine` where the order of batches does not matter.
  virtual void extend(metric_states& into, const metric_states& batch) const;

  /// Runs *f*, which accumulates one batch from inputs on *device*: without
  /// gradients, and with the states there. *f* checks its inputs before it
  /// assigns to a state, so that a batch that is refused changes nothing.
  template <class F>
  void accumulate(at::Device device, F&& f) {
    at::NoGradGuard no_grad;
    states_->to(device);
    std::forward<F>(f)();
    ++states_->updates;
    ++states_->revision;
  }

  /// The value of the one batch that *update* accumulates; afterwards it is
  /// part of the states, unless this throws.
  template <class F>
  at::Tensor batch_value(F&& update) {
    batch_guard guard{*this};
    std::forward<F>(update)();
    auto value = own_result();
    guard.commit();
    return value;
  }

private:
  friend class metric_collection;
  friend class metric_synchronization;

  /// Sets the states aside for one batch. Brings them back, with the batch if
  /// it was committed.
  class batch_guard {
  public:
    explicit batch_guard(metric& self);
    ~batch_guard();
    batch_guard(const batch_guard&) = delete;
    batch_guard& operator=(const batch_guard&) = delete;
    void commit();

  private:
    metric& self_;
    metric_states before_;
  };

  /// `result()` without gradients, in memory of its own.
  at::Tensor own_result() const;

  std::shared_ptr<metric_states> states_; // Shared in a collection.
  at::Tensor computed_;                   // Undefined if never computed.
  std::uint64_t computed_revision_ = 0;
  std::optional<torch_data_plane> plane_;
  bool warned_ = false;
};

} // namespace troupe
