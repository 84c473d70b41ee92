#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <cereal/types/optional.hpp>
#include <cereal/types/vector.hpp>

#include "troupe/runtime/config/run_config.hpp"

// Learning-rate schedules under the names of torch.optim.lr_scheduler. Without
// LibTorch's headers.
namespace troupe {

/// What a schedule multiplies the first learning rate by once *count* steps or
/// epochs are done, 0 at the start. A function of the count alone, so that only
/// the count has to be saved. Those below are equal to PyTorch's up to the last
/// bits, and throw `train_error` for an option out of range.
using lr_factor = std::function<double(std::int64_t count)>;

/// *gamma* times the rate before after every *step_size* counts.
struct step_lr {
  std::int64_t step_size = 1;
  double gamma = 0.1;

  double operator()(std::int64_t count) const;
};

/// *gamma* times the rate before at each of *milestones*, in any order.
struct multi_step_lr {
  std::vector<std::int64_t> milestones;
  double gamma = 0.1;

  double operator()(std::int64_t count) const;
};

/// *gamma* times the rate before after each count.
struct exponential_lr {
  double gamma = 0.9;

  double operator()(std::int64_t count) const;
};

/// From *start_factor* to *end_factor* in equal steps over *total* counts.
struct linear_lr {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total = 5;

  double operator()(std::int64_t count) const;
};

/// From 1 to 0 over *total* counts, as the given power of what is left.
struct polynomial_lr {
  std::int64_t total = 5;
  double power = 1;

  double operator()(std::int64_t count) const;
};

/// From 1 to *min_factor* over *total* counts, along half a cosine, and
/// constant from there: PyTorch's would rise again.
struct cosine_annealing_lr {
  std::int64_t total = 1; ///< PyTorch's `T_max`.
  double min_factor = 0;  ///< PyTorch's `eta_min` over the first rate.

  double operator()(std::int64_t count) const;
};

/// How `one_cycle_lr` gets from one rate to the next.
enum class annealing { cosine, linear };

/// Up to the optimizer's rate over the first part of *total* counts, then down
/// to almost nothing. The optimizer's rate is PyTorch's `max_lr`; momentum is
/// left alone. Counts from *total* on have the last rate.
struct one_cycle_lr {
  std::int64_t total = 2;
  double pct_start = 0.3;
  annealing anneal = annealing::cosine;
  double div_factor = 25;        ///< Peak over first rate.
  double final_div_factor = 1e4; ///< First rate over last one.
  /// Down to the first rate as fast as up, then to the last one.
  bool three_phase = false;

  double operator()(std::int64_t count) const;
};

/// From 1 / (*steps* + 1) to 1 in equal steps over *steps* counts, then *next*,
/// which counts from 0.
lr_factor warm_up_lr(std::int64_t steps, lr_factor next);

/// The product of all *factors*: PyTorch's `ChainedScheduler`.
lr_factor chained_lr(std::vector<lr_factor> factors);

/// Each of *factors* up to its milestone, the last without end. Each counts
/// from 0. *milestones* ascend and are one fewer.
lr_factor sequential_lr(std::vector<lr_factor> factors,
                        std::vector<std::int64_t> milestones);

/// Continues an `lr_scheduler`; all that cereal needs.
struct lr_scheduler_state {
  std::int64_t count = 0;
  std::vector<double> first_lr; ///< One for each parameter group.

  bool operator==(const lr_scheduler_state&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(count), CEREAL_NVP(first_lr));
  }
};

/// Continues a `reduce_lr_on_plateau`; all that cereal needs.
struct plateau_state {
  std::optional<double> best;
  int bad_steps = 0;     ///< In a row, without an improvement.
  int cooldown_left = 0; ///< Steps that are not judged.
  std::vector<double> lr;

  bool operator==(const plateau_state&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(best), CEREAL_NVP(bad_steps), CEREAL_NVP(cooldown_left),
       CEREAL_NVP(lr));
  }
};

namespace internal {

/// The learning rates of an optimizer's parameter groups.
class lr_access {
  template <class Optimizer>
  static constexpr bool sets_all = requires(Optimizer& x,
                                            const std::vector<double>& values) {
    x.own_lr(values);
  };

public:
  /// Of Troupe's optimizers, of LibTorch's and of a `loop_optimizer`, which
  /// must outlive this.
  template <class Optimizer>
  explicit lr_access(Optimizer& x)
    : get_([&x] {
        if constexpr (sets_all<Optimizer>)
          return x.lr();
        else {
          std::vector<double> result;
          for (auto& group : groups_of(x))
            if constexpr (requires { group.options.lr; })
              result.push_back(group.options.lr);
            else
              result.push_back(group.options().get_lr());
          return result;
        }
      }),
      set_([&x](std::size_t i, double lr) {
        if constexpr (sets_all<Optimizer>) {
          auto values = x.lr();
          values.at(i) = lr;
          x.own_lr(values);
        } else {
          auto& group = groups_of(x).at(i);
          if constexpr (requires { group.options.lr; })
            group.options.lr = lr;
          else
            group.options().set_lr(lr);
        }
      }) {}

  std::vector<double> lr() const { return get_(); }

  /// Throws `train_error` for another number of groups.
  void lr(const std::vector<double>& values) const;

private:
  template <class Optimizer>
  static auto& groups_of(Optimizer& x) {
    if constexpr (requires { x.groups(); })
      return x.groups();
    else
      return x.param_groups();
  }

  std::function<std::vector<double>()> get_;
  std::function<void(std::size_t, double)> set_;
};

} // namespace internal

/// Sets the learning rates of an optimizer by a schedule, for loops of one's
/// own; an `epoch_loop` does it by itself:
///
///   troupe::lr_scheduler schedule{
///     optimizer, troupe::cosine_annealing_lr{.total = cfg.epochs}};
///   ...
///   optimizer.step();
///   schedule.step(); // here, or once per epoch
class lr_scheduler {
public:
  /// The current rates of *optimizer*, which must outlive this, are the initial
  /// ones: create it before the optimizer's `load_state`. Sets those of step 0.
  template <class Optimizer>
  lr_scheduler(Optimizer& optimizer, lr_factor factor)
    : lr_scheduler(internal::lr_access{optimizer}, std::move(factor)) {}

  /// Sets the rates after another step or epoch.
  void step() { seek(state_.count + 1); }

  /// Sets the rates after *count* steps or epochs.
  void seek(std::int64_t count);

  std::int64_t count() const noexcept { return state_.count; }
  /// The current rate of each parameter group.
  std::vector<double> lr() const { return access_.lr(); }

  const lr_scheduler_state& state() const noexcept { return state_; }
  /// Continues from *x*, with its initial rates. Throws `train_error` for
  /// another number of parameter groups.
  void load_state(const lr_scheduler_state& x);

private:
  lr_scheduler(internal::lr_access access, lr_factor factor);

  internal::lr_access access_;
  lr_factor factor_;
  lr_scheduler_state state_;
};

/// Names and defaults are those of PyTorch's `ReduceLROnPlateau`.
struct plateau_options {
  score_order mode = score_order::min;
  double factor = 0.1;
  int patience = 10; ///< Steps without an improvement that are tolerated.
  double threshold = 1e-4;
  bool relative = true; ///< *threshold* is a fraction of the best value.
  int cooldown = 0;     ///< Steps after a reduction that are not judged.
  double min_lr = 0;
  double eps = 1e-8; ///< A smaller change is not made.
};

/// Reduces the learning rates of an optimizer once a value has stopped
/// improving.
class reduce_lr_on_plateau {
public:
  /// *optimizer* must outlive this. Throws `train_error` for an option out of
  /// range.
  template <class Optimizer>
  explicit reduce_lr_on_plateau(Optimizer& optimizer,
                                plateau_options options = {})
    : reduce_lr_on_plateau(internal::lr_access{optimizer}, options) {}

  /// Judges *value*. Give it the same value on every rank, such as one from
  /// `all_reduce`: ranks with other rates would train different models. NaN is
  /// not an improvement.
  void step(double value);

  std::vector<double> lr() const { return access_.lr(); }

  plateau_state state() const;
  /// Continues from *x*, with its rates.
  void load_state(const plateau_state& x);

private:
  reduce_lr_on_plateau(internal::lr_access access, plateau_options options);

  bool improves(double value) const;

  internal::lr_access access_;
  plateau_options options_;
  plateau_state state_; // without the rates
};

} // namespace troupe
