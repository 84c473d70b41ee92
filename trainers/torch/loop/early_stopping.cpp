#include "troupe/trainers/torch/loop/early_stopping.hpp"

#include <cmath>
#include <iostream>

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/loop/epoch_loop.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

early_stopping::early_stopping(early_stopping_options options)
  : options_(std::move(options)) {
  if (options_.monitor.empty())
    throw_invalid_argument("early_stopping was given no value to monitor");
  if (options_.patience < 0)
    throw_invalid_argument("early_stopping_options::patience is ",
                           options_.patience, ", but must be at least 0");
  if (!(options_.min_delta >= 0))
    throw_invalid_argument("early_stopping_options::min_delta is ",
                           options_.min_delta, ", but must be at least 0");
}

void early_stopping::on_validation_end(epoch_loop& loop) {
  if (!loop.sanity_checking() && !checks_train_epochs(loop))
    check(loop);
}

void early_stopping::on_train_epoch_end(epoch_loop& loop) {
  if (checks_train_epochs(loop))
    check(loop);
}

bool early_stopping::checks_train_epochs(const epoch_loop& loop) const {
  return options_.check_on_train_epoch_end.value_or(
    loop.options().check_val_every_n_epoch == 1);
}

void early_stopping::check(epoch_loop& loop) {
  auto value = monitored(loop);
  auto text = to_string(metric_value{value});
  auto begin =
    c10::str("epoch ", loop.current_epoch(), ": '", options_.monitor, "' ");
  if (options_.check_finite && !std::isfinite(value)) {
    reason_ = begin + "is " + text;
  } else if (improves(value)) {
    best_ = value;
    waited_ = 0;
    return;
  } else if (++waited_ < options_.patience) {
    return;
  } else {
    reason_ = c10::str(begin, "is ", text, ", and was not better than ",
                       to_string(metric_value{best_.value_or(value)}), " for ",
                       waited_, " checks in a row");
  }
  if (loop.context().rank() == 0)
    std::cout << "early_stopping: " << reason_ << std::endl;
  loop.stop();
}

double early_stopping::monitored(epoch_loop& loop) const {
  auto logged = loop.callback_metrics();
  auto mine = logged.number(options_.monitor);
  if (!mine)
    throw_invalid_argument("early_stopping monitors '", options_.monitor,
                           "', which rank ", loop.context().rank(),
                           " has not logged; it has logged: ",
                           logged.empty() ? "nothing" : to_string(logged));
  auto& context = loop.context();
  auto sum = at::scalar_tensor(
    *mine, at::TensorOptions{}.dtype(at::kDouble).device(device(context)));
  return all_reduce_sum(context, sum).item().toDouble() / context.world_size();
}

bool early_stopping::improves(double value) const {
  if (!best_)
    return !std::isnan(value);
  return options_.mode == score_order::min
           ? value + options_.min_delta < *best_
           : value - options_.min_delta > *best_;
}

metrics early_stopping::state_dict() const {
  metrics result{{"waited", waited_}, {"reason", reason_}};
  if (best_)
    result["best"] = *best_;
  return result;
}

void early_stopping::load_state_dict(const metrics& saved) {
  best_ = saved.number("best");
  waited_ = static_cast<int>(saved.number("waited").value_or(0));
  if (auto reason = saved.find("reason"))
    reason_ = to_string(*reason);
}

std::string early_stopping::state_key() const {
  return "early_stopping of " + options_.monitor;
}

} // namespace troupe
