#include "troupe/runtime/run/failure_policy.hpp"

#include <algorithm>

namespace troupe {

namespace {

bool over(std::int64_t failures, int limit) noexcept {
  return limit >= 0 && failures > limit;
}

} // namespace

bool is_retryable(ec code) noexcept {
  switch (code) {
    case ec::invalid_config:
    case ec::invalid_argument:
    case ec::not_initialized:
    case ec::conflict:
    case ec::corrupt:
    case ec::callback_failed:
    case ec::unsupported:
      return false;
    default:
      return true;
  }
}

std::optional<failure_policy::duration> failure_policy::on_ranks_failed() {
  ++rank_failures_;
  if (over(rank_failures_, config_.max_failures))
    return std::nullopt;
  return duration{0};
}

std::optional<failure_policy::duration>
failure_policy::on_start_failed(const error& reason) {
  ++start_failures_;
  if (!is_retryable(reason.code)
      || over(start_failures_, config_.controller_failure_limit))
    return std::nullopt;
  // Seven doublings reach the longest delay; more would overflow one day.
  auto doublings = std::min(failed_starts_in_a_row_++, 7);
  return std::min(first_delay * (1 << doublings), longest_delay);
}

} // namespace troupe
