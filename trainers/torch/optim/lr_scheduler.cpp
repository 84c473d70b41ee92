#include "troupe/trainers/torch/optim/lr_scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "troupe/runtime/counted.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

namespace {

/// From *from* to *to*, *done* of 1 along half a cosine.
double along_cosine(double from, double to, double done) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

double power(double x, std::int64_t n) {
  return std::pow(x, static_cast<double>(n));
}

double ratio(std::int64_t x, std::int64_t y) {
  return static_cast<double>(x) / static_cast<double>(y);
}

} // namespace

// -- factors

double step_lr::operator()(std::int64_t count) const {
  require_at_least(1, step_size, "step_lr::step_size");
  return power(gamma, count / step_size);
}

double multi_step_lr::operator()(std::int64_t count) const {
  return power(gamma, std::ranges::count_if(
                        milestones, [&](auto x) { return x <= count; }));
}

double exponential_lr::operator()(std::int64_t count) const {
  return power(gamma, count);
}

double linear_lr::operator()(std::int64_t count) const {
  require_at_least(1, total, "linear_lr::total");
  return start_factor
         + (end_factor - start_factor) * ratio(std::min(count, total), total);
}

double polynomial_lr::operator()(std::int64_t count) const {
  require_at_least(1, total, "polynomial_lr::total");
  return std::pow(1 - ratio(std::min(count, total), total), power);
}

double cosine_annealing_lr::operator()(std::int64_t count) const {
  require_at_least(1, total, "cosine_annealing_lr::total");
  return along_cosine(1, min_factor, ratio(std::min(count, total), total));
}

double one_cycle_lr::operator()(std::int64_t count) const {
  require_at_least(2, total, "one_cycle_lr::total");
  if (!(pct_start >= 0 && pct_start <= 1))
    throw_invalid_argument("one_cycle_lr::pct_start is ", pct_start,
                           ", but must be between 0 and 1");
  struct phase {
    double end; // the last count
    double from;
    double to;
  };
  auto n = static_cast<double>(total);
  auto first = 1 / div_factor;
  auto last = first / final_div_factor;
  std::vector<phase> phases{{pct_start * n - 1, first, 1}};
  if (three_phase) {
    phases.push_back({2 * pct_start * n - 2, 1, first});
    phases.push_back({n - 1, first, last});
  } else {
    phases.push_back({n - 1, 1, last});
  }
  auto now = std::min(static_cast<double>(count), n - 1);
  auto current = phases.begin();
  double begin = 0;
  while (now > current->end && current + 1 != phases.end())
    begin = current++->end;
  auto length = current->end - begin;
  auto done = length > 0 ? (now - begin) / length : 1;
  return anneal == annealing::linear
           ? current->from + (current->to - current->from) * done
           : along_cosine(current->from, current->to, done);
}

lr_factor warm_up_lr(std::int64_t steps, lr_factor next) {
  require_at_least(0, steps, "the number of steps of warm_up_lr");
  return [steps, next = std::move(next)](std::int64_t count) {
    return count < steps ? ratio(count + 1, steps + 1) : next(count - steps);
  };
}

lr_factor chained_lr(std::vector<lr_factor> factors) {
  return [factors = std::move(factors)](std::int64_t count) {
    double result = 1;
    for (auto& factor : factors)
      result *= factor(count);
    return result;
  };
}

lr_factor sequential_lr(std::vector<lr_factor> factors,
                        std::vector<std::int64_t> milestones) {
  if (milestones.size() + 1 != factors.size())
    throw_invalid_argument("sequential_lr has ",
                           counted(factors.size(), "schedule"), " and ",
                           counted(milestones.size(), "milestone"),
                           ": the latter must be one fewer");
  if (!std::ranges::is_sorted(milestones))
    throw_invalid_argument("the milestones of sequential_lr must ascend");
  return [factors = std::move(factors),
          milestones = std::move(milestones)](std::int64_t count) {
    auto after = std::ranges::upper_bound(milestones, count);
    auto begun = after == milestones.begin() ? 0 : *(after - 1);
    auto index = static_cast<std::size_t>(after - milestones.begin());
    return factors[index](count - begun);
  };
}

// -- what sets the rates

void lr_access::lr(const std::vector<double>& values) const {
  if (auto groups = lr().size(); groups != values.size())
    throw_invalid_argument("the optimizer has ", groups,
                           " parameter groups, but the schedule was saved "
                           "with ",
                           values.size());
  for (std::size_t group = 0; group < values.size(); ++group)
    set_(group, values[group]);
}

lr_scheduler::lr_scheduler(lr_access access, lr_factor factor)
  : access_(std::move(access)),
    factor_(std::move(factor)), state_{0, access_.lr()} {
  if (!factor_)
    throw_invalid_argument("lr_scheduler was given an empty function");
  seek(0);
}

void lr_scheduler::seek(std::int64_t count) {
  require_at_least(0, count, "the count of an lr_scheduler");
  auto factor = factor_(count);
  auto values = state_.first_lr;
  for (auto& value : values)
    value *= factor;
  access_.lr(values);
  state_.count = count;
}

void lr_scheduler::load_state(const lr_scheduler_state& x) {
  auto before = std::exchange(state_, x);
  try {
    seek(x.count);
  } catch (...) {
    state_ = std::move(before);
    throw;
  }
}

reduce_lr_on_plateau::reduce_lr_on_plateau(lr_access access,
                                           plateau_options options)
  : access_(std::move(access)), options_(options) {
  auto refuse = [](const char* name, double value, const char* must) {
    throw_invalid_argument("plateau_options::", name, " is ", value,
                           ", but must be ", must);
  };
  if (!(options.factor >= 0 && options.factor < 1))
    refuse("factor", options.factor, "at least 0 and below 1");
  if (!(options.threshold >= 0))
    refuse("threshold", options.threshold, "at least 0");
  if (options.patience < 0)
    refuse("patience", options.patience, "at least 0");
  if (options.cooldown < 0)
    refuse("cooldown", options.cooldown, "at least 0");
}

void reduce_lr_on_plateau::step(double value) {
  if (improves(value)) {
    state_.best = value;
    state_.bad_steps = 0;
  } else {
    ++state_.bad_steps;
  }
  if (state_.cooldown_left > 0) {
    --state_.cooldown_left;
    state_.bad_steps = 0;
  }
  if (state_.bad_steps <= options_.patience)
    return;
  auto values = access_.lr();
  for (auto& now : values)
    if (auto next = std::max(now * options_.factor, options_.min_lr);
        now - next > options_.eps)
      now = next;
  access_.lr(values);
  state_.cooldown_left = options_.cooldown;
  state_.bad_steps = 0;
}

bool reduce_lr_on_plateau::improves(double value) const {
  auto is_min = options_.mode == score_order::min;
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  auto best = state_.best.value_or(is_min ? infinity : -infinity);
  // What is relative to an infinite value would be NaN.
  auto least = !options_.relative ? options_.threshold
               : std::isinf(best) ? 0
                                  : best * options_.threshold;
  return is_min ? value < best - least : value > best + least;
}

plateau_state reduce_lr_on_plateau::state() const {
  auto result = state_;
  result.lr = access_.lr();
  return result;
}

void reduce_lr_on_plateau::load_state(const plateau_state& x) {
  access_.lr(x.lr);
  state_ = x;
  state_.lr.clear();
}

} // namespace troupe
