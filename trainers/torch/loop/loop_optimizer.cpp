#include "troupe/trainers/torch/loop/loop_optimizer.hpp"

#include <string_view>

#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

std::string loop_optimizer::name() const {
  std::string_view type = self_->type();
  if (auto colon = type.substr(0, type.find('<')).rfind(':');
      colon != std::string_view::npos)
    type.remove_prefix(colon + 1);
  return std::string{type};
}

void loop_optimizer::first_lr(std::vector<double> values) {
  check_groups(values);
  scheduled_ = first_lr_ = std::move(values);
}

std::vector<double> loop_optimizer::own_lr() const {
  auto now = lr();
  return now == scheduled_ ? std::vector<double>{} : now;
}

void loop_optimizer::own_lr(const std::vector<double>& values) {
  check_groups(values);
  for (std::size_t group = 0; group < values.size(); ++group)
    self_->lr(group, values[group]);
}

void loop_optimizer::check_groups(const std::vector<double>& saved) const {
  if (saved.size() != first_lr_.size())
    throw_invalid_argument(
      "the optimizer has ", first_lr_.size(),
      " parameter groups, but the checkpoint has learning rates for ",
      saved.size());
}

void loop_optimizer::follow_schedule(schedule_interval interval,
                                     std::int64_t count) {
  if (!schedule_.factor || schedule_.interval != interval)
    return;
  auto factor = schedule_.factor(count);
  for (std::size_t group = 0; group < first_lr_.size(); ++group)
    self_->lr(group, first_lr_[group] * factor);
  scheduled_ = lr();
}

} // namespace troupe
