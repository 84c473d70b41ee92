#include "troupe/trainers/torch/loop/loop_log.hpp"

#include <ATen/Functions.h>

#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/data_plane.hpp"
#include "troupe/trainers/torch/refuse.hpp"

namespace troupe {

namespace {

at::Tensor mean_over_ranks(train_context& context, const at::Tensor& x) {
  return all_reduce_sum(context, x.to(device(context), at::kDouble,
                                      /*non_blocking=*/false, /*copy=*/true))
         / context.world_size();
}

} // namespace

void loop_log::begin_training() {
  training_.clear();
  validating_ = false;
  place_ = place::epoch;
}

void loop_log::begin_validation() {
  validation_.clear();
  validating_ = true;
  place_ = place::epoch;
}

void loop_log::begin_batch(std::int64_t samples) {
  samples_ = samples;
  place_ = place::batch;
}

void loop_log::end_batch() {
  samples_ = 1;
  place_ = place::epoch;
}

void loop_log::end_epoch(train_context& context) {
  for (auto& [name, mean] : means().means(context)) {
    auto value = at::scalar_tensor(mean, at::kDouble);
    keep(name, value);
    if (twofold_.count(name))
      keep(name + "_epoch", value);
  }
  place_ = place::epoch_end;
}

void loop_log::end_validation(bool is_training) {
  validating_ = false;
  place_ = is_training ? place::epoch : place::outside;
}

void loop_log::add(train_context& context, const std::string& name,
                   const at::Tensor& value, const log_options& options) {
  if (name.empty())
    refuse("a value is logged without a name");
  if (place_ == place::outside)
    refuse("'" + name
           + "' is logged outside of the epochs of a fit, where no mean or "
             "report would ever hold it");
  if (!value.defined() || value.numel() != 1)
    refuse("'" + name + "' is logged with "
           + (value.defined() ? std::to_string(value.numel()) + " elements"
                              : std::string{"an undefined tensor"})
           + ", but a logged value is one number");
  const auto in_batch = place_ == place::batch && !validating_;
  const auto at_end = place_ == place::epoch_end;
  const auto on_step = options.on_step.value_or(in_batch) || at_end;
  const auto on_epoch = options.on_epoch.value_or(!in_batch) && !at_end;
  if (on_step) {
    auto now = options.sync_dist
                 ? mean_over_ranks(context, value.detach())
                 : value.detach().to(at::kDouble).reshape({}).clone();
    keep(name, now);
    if (on_epoch) {
      keep(name + "_step", now);
      twofold_.insert(name);
    }
  }
  if (on_epoch) {
    auto weight = options.batch_size.value_or(samples_);
    if (weight < 0)
      refuse("'" + name + "' is logged with a batch size of "
             + std::to_string(weight));
    means().add(name, value, static_cast<double>(weight), options.sync_dist);
  }
}

metrics loop_log::values() const {
  metrics result;
  for (auto& [name, value] : values_)
    result[name] = value.item().toDouble();
  return result;
}

void loop_log::restore(const metrics& values) {
  for (auto& [name, value] : values)
    keep(name, at::scalar_tensor(value.number(), at::kDouble));
}

} // namespace troupe
