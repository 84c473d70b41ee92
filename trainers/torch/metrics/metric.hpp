#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include "troupe/trainers/torch/files/tensor_map.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/metrics/metric_state.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

namespace internal {
class metric_synchronization;
} // namespace internal

/// A number over all samples of all ranks, accumulated batch by batch.
///
/// A metric declares its states with `add_state` in its constructor, changes
/// them in an update, and computes its value from them in `result`. The classes
/// below define the signature of an update: derive from `value_metric` or
/// `prediction_metric`.
///
/// `compute` is a collective of the ranks of the train loop on the calling
/// thread, or of the group given to `synchronize_over`; outside of a train loop
/// the metric covers one process. Copies are independent. Not thread-safe.
/// Invalid arguments throw `train_error` (`ec::invalid_argument`).
class metric {
public:
  virtual ~metric() = default;

  /// For messages and as the default key in a collection
  /// ("mean_squared_error").
  virtual std::string name() const = 0;

  /// Metrics with equal, nonempty keys have equal states after equal updates: a
  /// collection lets them share one. Names the kind of states and every option
  /// that they depend on.
  virtual std::string state_key() const { return {}; }

  /// The value over all samples of all ranks since the last reset, double or
  /// int64, on the device of the inputs.
  ///
  /// A collective: every rank calls it, also those without samples. Afterwards
  /// each rank has its own states again. The value is cached until any rank
  /// updates or resets; until then a call costs one small collective.
  at::Tensor compute();

  /// The single element of `compute()`. Throws if there are several.
  double value();

  /// Discards all updates.
  void reset();

  /// Adds the states of *other*, a metric of the same kind and options.
  void merge(const metric& other);

  /// This rank's states by name, and the number of updates, for checkpoints.
  tensor_map state() const;

  /// Replaces the states by *x*, a `state()` of a metric of the same kind and
  /// options. Throws on other names, types or shapes.
  void load_state(const tensor_map& x);

  /// Moves the states to *device*; an update does so on its own.
  void to(at::Device device);

  /// From now on synchronizes over *plane* instead of the train loop's group.
  void synchronize_over(torch_data_plane plane);

  /// Number of updates on this rank since the last reset.
  std::int64_t updates() const noexcept { return states_->updates; }

protected:
  metric();
  metric(const metric& other);
  metric& operator=(const metric& other);

  /// Declares a state and returns its number. *initial* is its value after a
  /// reset (of cat: an empty tensor of the right type, `at::empty({0},
  /// at::kDouble)`). For constructors only.
  std::size_t add_state(std::string name, metric_reduction reduction,
                        at::Tensor initial);

  /// Declares a 0-d double that starts at 0 and is summed over ranks.
  std::size_t add_sum(std::string name);

  /// Declares a 0-d int64 that starts at 0 and is summed over ranks.
  std::size_t add_count(std::string name);

  /// The value of state *number*. Assign to it; do not write into the tensor.
  at::Tensor& state(std::size_t number);
  const at::Tensor& state(std::size_t number) const;

  /// Appends *part* to the cat state *number*; copies it if its memory is
  /// shared, so that later writes by others do not change the state.
  void append(std::size_t number, at::Tensor part);

  /// Replaces all parts of the cat state *number* by *whole*.
  void replace(std::size_t number, at::Tensor whole);

  /// All parts of the cat state *number* as one tensor.
  at::Tensor joined(std::size_t number) const;

  /// The device of the last inputs, at first the CPU.
  at::Device state_device() const { return states_->device(); }

  /// The value of the states as they are.
  virtual at::Tensor result() const = 0;

  /// Adds the states *from* of another rank to *into*, both with at least one
  /// update. Override it if the states cannot be reduced one by one.
  virtual void combine(metric_states& into, const metric_states& from) const;

  /// Adds the states of the next *batch* to *into*, both with updates. Override
  /// it if the order of batches matters; by default the same as `combine`.
  virtual void extend(metric_states& into, const metric_states& batch) const;

  /// Runs *f*, which accumulates one batch from inputs on *device*: without
  /// gradients, and with the states on that device. *f* validates its inputs
  /// before it assigns to a state: a refused batch changes nothing.
  template <class F>
  void accumulate(at::Device device, F&& f) {
    at::NoGradGuard no_grad;
    states_->to(device);
    std::forward<F>(f)();
    ++states_->updates;
    ++states_->revision;
  }

  /// The value of only the batch that *update* accumulates. The batch is then
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
  friend class internal::metric_synchronization;

  /// Sets the states aside for one batch and restores them at the end, with the
  /// batch if it was committed.
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

/// A metric of plain values, such as their mean or maximum.
class value_metric : public metric {
public:
  /// Accumulates all elements of *values*, a tensor of any shape.
  void update(const at::Tensor& values);
  void update(double value);

  /// Accumulates, and returns the value of this batch on this rank only.
  at::Tensor forward(const at::Tensor& values);
  at::Tensor forward(double value);

  at::Tensor operator()(const at::Tensor& values) { return forward(values); }
  at::Tensor operator()(double value) { return forward(value); }

protected:
  /// Accumulates *values*.
  virtual void add(const at::Tensor& values) = 0;

  /// *x* as a 0-d tensor on the device of the states.
  at::Tensor as_tensor(double x) const;
};

/// A metric that compares predictions with targets.
class prediction_metric : public metric {
public:
  /// Accumulates one batch. Both tensors are on one device; the metric defines
  /// their shapes and types. Throws, and changes nothing, if they do not match.
  /// An empty batch does not count.
  void update(const at::Tensor& preds, const at::Tensor& target);

  /// Accumulates one batch, and returns its value on this rank only.
  at::Tensor forward(const at::Tensor& preds, const at::Tensor& target);

  at::Tensor operator()(const at::Tensor& preds, const at::Tensor& target) {
    return forward(preds, target);
  }

protected:
  /// Accumulates one batch into the states.
  virtual void add(const at::Tensor& preds, const at::Tensor& target) = 0;

  /// Throws if the shapes differ, with both in the message.
  void check_same_shape(const at::Tensor& preds,
                        const at::Tensor& target) const;
};

/// Throws the `train_error` "name: parts..." for invalid arguments.
template <class... Parts>
[[noreturn]] void refuse_metric(const std::string& name,
                                const Parts&... parts) {
  throw train_error{{ec::invalid_argument, c10::str(name, ": ", parts...)}};
}

/// Warns through LibTorch, "name: sentence", of a value that may surprise.
void warn_metric(const std::string& name, const std::string& sentence);

/// *x* as double, from any real type. Throws for complex numbers.
at::Tensor widened(const std::string& name, const at::Tensor& x);

} // namespace troupe
