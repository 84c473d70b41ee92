#include "troupe/trainers/torch/loop/monitors.hpp"

#include <iostream>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/loop/epoch_loop.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

// -- monitor_callback

monitor_callback::monitor_callback(std::string who, std::string monitor,
                                   std::optional<bool> check_on_train_epoch_end)
  : who_(std::move(who)), monitor_(std::move(monitor)),
    check_on_train_epoch_end_(check_on_train_epoch_end) {
  if (monitor_.empty())
    throw_invalid_argument(who_, " was given no value to monitor");
}

void monitor_callback::on_validation_end(epoch_loop& loop) {
  if (!loop.sanity_checking() && !checks_train_epochs(loop))
    check(loop, value_in(loop));
}

void monitor_callback::on_train_epoch_end(epoch_loop& loop) {
  if (checks_train_epochs(loop))
    check(loop, value_in(loop));
}

std::string monitor_callback::state_key() const {
  return who_ + " of " + monitor_;
}

bool monitor_callback::checks_train_epochs(const epoch_loop& loop) const {
  return check_on_train_epoch_end_.value_or(
    loop.options().check_val_every_n_epoch == 1);
}

double monitor_callback::value_in(epoch_loop& loop) const {
  auto logged = loop.callback_metrics();
  auto mine = logged.find_number(monitor_);
  auto& context = loop.context();
  // A rank may have had no batch in which it would have logged it.
  auto sum = at::tensor(std::vector{mine.value_or(0), mine ? 1.0 : 0.0});
  sum = all_reduce(context, sum.to(device(context))).to(at::kCPU);
  auto ranks = sum[1].item<double>();
  if (ranks == 0)
    throw_invalid_argument(
      who_, " monitors '", monitor_, "', which no rank has logged; rank ",
      context.rank(),
      " has logged: ", logged.empty() ? "nothing" : to_string(logged));
  return sum[0].item<double>() / ranks;
}

// -- early_stopping_callback

early_stopping_callback::early_stopping_callback(
  early_stopping_options options, std::optional<bool> check_on_train_epoch_end)
  : monitor_callback("early_stopping", options.monitor,
                     check_on_train_epoch_end),
    judge_(std::move(options)) {}

void early_stopping_callback::check(epoch_loop& loop, double value) {
  if (!judge_.step(value))
    return;
  if (loop.context().rank() == 0)
    std::cout << "early_stopping: epoch " << loop.current_epoch() << ": "
              << judge_.reason() << std::endl;
  loop.stop();
}

metrics early_stopping_callback::state_dict() const {
  metrics result{{"waited", judge_.waited()}, {"reason", judge_.reason()}};
  if (auto best = judge_.best())
    result["best"] = *best;
  return result;
}

void early_stopping_callback::load_state_dict(const metrics& saved) {
  early_stopping_state x;
  x.best = saved.find_number("best");
  x.waited = static_cast<int>(saved.find_number("waited").value_or(0));
  if (auto reason = saved.find("reason"))
    x.reason = to_string(*reason);
  judge_.load_state(x);
}

// -- plateau_callback

plateau_callback::plateau_callback(std::string monitor, plateau_options options,
                                   std::optional<bool> check_on_train_epoch_end)
  : monitor_callback("plateau_callback", std::move(monitor),
                     check_on_train_epoch_end),
    options_(options) {}

void plateau_callback::on_fit_start(epoch_loop& loop) {
  if (loop.optimizer().schedule().factor)
    throw_invalid_argument(
      "plateau_callback: the optimizer has a schedule of its own, which would "
      "set the learning rate, too");
  reduce_lr_on_plateau{loop.optimizer(), options_}; // refuses bad options
}

void plateau_callback::check(epoch_loop& loop, double value) {
  reduce_lr_on_plateau plateau{loop.optimizer(), options_};
  state_.lr = loop.optimizer().lr();
  plateau.load_state(state_);
  plateau.step(value);
  state_ = plateau.state();
}

metrics plateau_callback::state_dict() const {
  metrics result{{"bad_steps", state_.bad_steps},
                 {"cooldown_left", state_.cooldown_left}};
  if (state_.best)
    result["best"] = *state_.best;
  return result; // the loop saves the learning rates
}

void plateau_callback::load_state_dict(const metrics& saved) {
  auto count = [&](const char* name) {
    return static_cast<int>(saved.find_number(name).value_or(0));
  };
  state_.best = saved.find_number("best");
  state_.bad_steps = count("bad_steps");
  state_.cooldown_left = count("cooldown_left");
}

} // namespace troupe
