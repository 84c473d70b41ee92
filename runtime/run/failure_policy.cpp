#include "troupe/runtime/run/failure_policy.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace troupe::internal {

namespace {

bool over(std::int64_t failures, int limit) noexcept {
  return limit >= 0 && failures > limit;
}

/// Wait after *before* waits in a row. Seven doublings reach the longest delay;
/// many more would overflow.
failure_policy::duration doubled(std::int64_t before) {
  auto doublings = static_cast<int>(std::min<std::int64_t>(before, 7));
  return std::min(failure_policy::first_delay * (1 << doublings),
                  failure_policy::longest_delay);
}

} // namespace

failure_policy::failure_policy(const failure_config& config,
                               random_function random)
  : config_(config), random_(std::move(random)) {}

failure_policy::random_function failure_policy::default_random() {
  return [engine = std::minstd_rand{std::random_device{}()}]() mutable {
    return std::uniform_real_distribution<double>{}(engine);
  };
}

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
  auto delay = doubled(ends - 2);
  return delay - std::chrono::duration_cast<duration>(delay * (random_() / 2));
}

std::optional<failure_policy::duration>
failure_policy::on_start_failed(const error& reason) {
  ++start_failures_;
  if (!is_retryable(reason.code)
      || over(start_failures_, config_.controller_failure_limit))
    return std::nullopt;
  return doubled(failed_starts_in_a_row_++);
}

} // namespace troupe::internal
