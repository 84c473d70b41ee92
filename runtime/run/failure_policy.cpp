#include "troupe/runtime/run/failure_policy.hpp"

#include <utility>

namespace troupe::internal {

namespace {

bool over(std::int64_t failures, int limit) noexcept {
  return limit >= 0 && failures > limit;
}

} // namespace

failure_policy::failure_policy(const failure_config& config,
                               random_function random)
  : config_(config), random_(std::move(random)) {}

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
  ++failures_in_a_row_;
  return wait_after(failures_in_a_row_ + leaves_in_a_row_);
}

std::optional<failure_policy::duration> failure_policy::on_ranks_left() {
  ++leaves_in_a_row_;
  if (leaves_in_a_row_ > free_leaves
      && over(++rank_failures_, config_.max_failures))
    return std::nullopt;
  return wait_after(failures_in_a_row_ + leaves_in_a_row_);
}

failure_policy::duration failure_policy::wait_after(std::int64_t ends) const {
  if (ends < 2)
    return duration{0};
  return with_jitter(delay.after(ends - 1), random_());
}

std::optional<failure_policy::duration>
failure_policy::on_start_failed(const error& reason) {
  ++start_failures_;
  if (!is_retryable(reason.code)
      || over(start_failures_, config_.controller_failure_limit))
    return std::nullopt;
  return delay.after(++failed_starts_in_a_row_);
}

} // namespace troupe::internal
