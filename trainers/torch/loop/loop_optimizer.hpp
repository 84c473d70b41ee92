#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>

#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe {

/// What a learning-rate schedule counts.
enum class schedule_interval { epoch, step };

/// The learning rate of every parameter group over time, as a multiple of what
/// `configure_optimizers` set: Python's `LambdaLR`.
///
/// A function of the count alone, so a checkpoint holds what it multiplies and
/// nothing of it, and a resumed run continues exactly. As with `LambdaLR`, a
/// learning rate that a hook sets counts until the schedule advances, which
/// does not start from it.
struct lr_schedule {
  /// Called with the number of finished epochs or optimizer steps, 0 at the
  /// start. Empty: the learning rate is left alone.
  std::function<double(std::int64_t count)> factor;
  schedule_interval interval = schedule_interval::epoch;
};

/// What an `epoch_loop` can step, save and restore; the fused optimizers can.
template <class T>
concept steppable = requires(T& x, const tensor_map& saved) {
  x.step();
  x.load_state(saved);
  { x.state() } -> std::convertible_to<tensor_map>;
  x.groups().at(0).parameters;
  x.groups().at(0).options.lr;
};

/// The optimizer of a `training_module` and the schedule of its learning rate.
/// Copies share the optimizer.
///
///   loop_optimizer configure_optimizers() override {
///     return {std::make_shared<fused_adam>(parameters()),
///             {.factor = [](auto epoch) { return std::pow(0.9, epoch); }}};
///   }
class loop_optimizer {
public:
  /// No optimizer.
  loop_optimizer() = default;

  /// As without, if *optimizer* is null.
  template <steppable Optimizer>
  loop_optimizer(std::shared_ptr<Optimizer> optimizer,
                 lr_schedule schedule = {})
    : schedule_(std::move(schedule)) {
    if (!optimizer)
      return;
    self_ = std::make_shared<model<Optimizer>>(std::move(optimizer));
    first_lr_ = lr();
    scheduled_ = first_lr_;
  }

  explicit operator bool() const noexcept { return self_ != nullptr; }

  /// Its type without namespaces, such as `fused_adam`.
  std::string name() const;

  void step() { self_->step(); }

  /// Learning rate of each parameter group.
  std::vector<double> lr() const { return self_->lr(); }

  std::vector<at::Tensor> parameters() const { return self_->parameters(); }

  /// See `fused_optimizer`.
  tensor_map state() const { return self_->state(); }
  void load_state(const tensor_map& saved) { self_->load_state(saved); }

  const lr_schedule& schedule() const noexcept { return schedule_; }

  /// What the schedule multiplies, one for each parameter group.
  const std::vector<double>& first_lr() const noexcept { return first_lr_; }

  /// Lets the schedule multiply *values*, one for each parameter group.
  void first_lr(std::vector<double> values);

  /// Learning rates that hooks have set since the schedule did; empty: none.
  std::vector<double> own_lr() const;

  /// Sets the learning rates to *values*, one for each parameter group.
  void own_lr(const std::vector<double>& values);

  /// Sets the learning rates to those of *count* if the schedule counts in
  /// *interval*.
  void follow_schedule(schedule_interval interval, std::int64_t count);

  /// The optimizer itself, nullptr if it is not an *Optimizer*.
  template <class Optimizer>
  Optimizer* as() const {
    auto x = dynamic_cast<model<Optimizer>*>(self_.get());
    return x ? x->optimizer.get() : nullptr;
  }

private:
  struct erased {
    virtual ~erased() = default;
    virtual const char* type() const = 0;
    virtual void step() = 0;
    virtual std::vector<double> lr() const = 0;
    virtual void lr(std::size_t group, double value) = 0;
    virtual std::vector<at::Tensor> parameters() const = 0;
    virtual tensor_map state() const = 0;
    virtual void load_state(const tensor_map& saved) = 0;
  };

  template <class Optimizer>
  struct model;

  void check_groups(const std::vector<double>& saved) const;

  std::shared_ptr<erased> self_;
  lr_schedule schedule_;
  std::vector<double> first_lr_;
  std::vector<double> scheduled_; // what the schedule set last
};

template <class Optimizer>
struct loop_optimizer::model final : erased {
  explicit model(std::shared_ptr<Optimizer> x) : optimizer(std::move(x)) {}

  const char* type() const override { return c10::demangle_type<Optimizer>(); }
  void step() override { optimizer->step(); }
  std::vector<double> lr() const override {
    std::vector<double> result;
    for (auto& group : optimizer->groups())
      result.push_back(group.options.lr);
    return result;
  }
  void lr(std::size_t group, double value) override {
    optimizer->groups().at(group).options.lr = value;
  }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> result;
    for (auto& group : optimizer->groups())
      result.insert(result.end(), group.parameters.begin(),
                    group.parameters.end());
    return result;
  }
  tensor_map state() const override { return optimizer->state(); }
  void load_state(const tensor_map& saved) override {
    optimizer->load_state(saved);
  }

  std::shared_ptr<Optimizer> optimizer;
};

} // namespace troupe
