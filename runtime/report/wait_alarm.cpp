#include "troupe/runtime/report/wait_alarm.hpp"

namespace troupe {

expected<std::optional<std::string>>
wait_alarm::check(const std::optional<rank_wait>& wait, time_point now) {
  if (!wait) {
    current_.reset();
    return std::nullopt;
  }
  if (!current_ || current_->what != wait->what
      || current_->since != wait->since) {
    current_ = *wait;
    warnings_ = 0;
  }
  auto waited = now - wait->since;
  if (timeout_ && waited >= *timeout_)
    return failure(ec::timeout, to_string(*wait, now));
  auto due = waited / warn_interval;
  if (due <= warnings_)
    return std::nullopt;
  warnings_ = due;
  return to_string(*wait, now);
}

} // namespace troupe
