#include "troupe/trainers/torch/loop/loop_optimizer.hpp"

#include <string_view>

#include "troupe/trainers/torch/refuse.hpp"

namespace troupe {

std::string loop_optimizer::name() const {
  std::string_view type = self_->type();
  if (auto colon = type.substr(0, type.find('<')).rfind(':');
      colon != std::string_view::npos)
    type.remove_prefix(colon + 1);
  return std::string{type};
}

void loop_optimizer::first_lr(std::vector<double> values) {
  if (values.size() != first_lr_.size())
    refuse("the optimizer has " + std::to_string(first_lr_.size())
           + " parameter groups, but the checkpoint has learning rates for "
           + std::to_string(values.size()));
  first_lr_ = std::move(values);
}

void loop_optimizer::follow_schedule(schedule_interval interval,
                                     std::int64_t count) {
  if (!schedule_.factor || schedule_.interval != interval)
    return;
  auto factor = schedule_.factor(count);
  for (std::size_t group = 0; group < first_lr_.size(); ++group)
    self_->lr(group, first_lr_[group] * factor);
}

} // namespace troupe
