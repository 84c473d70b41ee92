#include "troupe/trainers/torch/loop/loop_optimizer.hpp"

#include <string_view>

namespace troupe {

std::string loop_optimizer::name() const {
  std::string_view type = self_->type();
  if (auto colon = type.substr(0, type.find('<')).rfind(':');
      colon != std::string_view::npos)
    type.remove_prefix(colon + 1);
  return std::string{type};
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
