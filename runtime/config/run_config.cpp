#include "troupe/runtime/config/run_config.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "troupe/runtime/environment.hpp"
#include "troupe/runtime/path_component.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"

namespace troupe {

std::string_view to_string(score_order x) noexcept {
  return x == score_order::max ? "max" : "min";
}

} // namespace troupe

namespace troupe::internal {

bool is_better(double a, double b, score_order order) noexcept {
  if (std::isnan(a) || std::isnan(b))
    return !std::isnan(a);
  return order == score_order::max ? a > b : a < b;
}

expected<void> validate(const checkpoint_config& x) {
  if (x.num_to_keep && *x.num_to_keep < 1)
    return failure(
      ec::invalid_config,
      concat("run.checkpoint.num_to_keep must be >= 1 or unset, got ",
             *x.num_to_keep));
  return {};
}

namespace {

expected<void> validate_name(const std::string& name) {
  if (name.empty())
    return failure(ec::invalid_config, "run.name is empty");
  if (!is_path_component(name))
    return failure(ec::invalid_config,
                   "run.name '" + name
                     + "' is not one path component: no '/', no control "
                       "characters, not '.' or '..', at most 200 bytes");
  return {};
}

expected<fs::path> resolved_storage(const run_config& x) {
  TROUPE_TRY(auto path, expanded(x.storage_path.string(), "run.storage_path"));
  return absolute_path(path).map_error([](const error& problem) {
    return error{ec::invalid_config, "run.storage_path " + problem.message};
  });
}

/// A time that a user sets.
struct limit_rule {
  const char* name;
  std::optional<std::chrono::milliseconds> value;
  const char* range; ///< "> 0" or ">= 0", and " or unset" if it may be.
};

expected<void> validate_limits(const run_config& x) {
  const limit_rule rules[] = {
    {"callback_timeout", x.callback_timeout, ">= 0"},
    {"callback_limit", x.callback_limit, "> 0 or unset"},
    {"report_timeout", x.report_timeout, "> 0 or unset"},
    {"hang_timeout", x.hang_timeout, "> 0 or unset"},
    {"start_timeout", x.start_timeout, "> 0"},
    {"stop_timeout", x.stop_timeout, ">= 0"},
    {"exit_timeout", x.exit_timeout, ">= 0"},
    {"stop_grace", x.stop_grace, ">= 0"},
    {"sender_grace", x.sender_grace, ">= 0 or unset"},
  };
  for (auto& [name, value, range] : rules) {
    auto takes_zero = std::string_view{range}.starts_with(">=");
    if (value && value->count() < (takes_zero ? 0 : 1))
      return failure(ec::invalid_config,
                     concat("run.", name, " must be ", range, ", got ",
                            duration_text(*value)));
  }
  return {};
}

expected<void> validate_signals(const run_config& x) {
  for (auto signal : x.preempt_signals)
    if (signal < 1 || signal > 64 || signal == SIGKILL || signal == SIGSTOP)
      return failure(
        ec::invalid_config,
        concat("run.preempt_signals has ", signal,
               ", which is not a signal that a program can handle"));
  return {};
}

} // namespace

expected<std::optional<std::chrono::milliseconds>> sender_grace_of_host() {
  using std::chrono::milliseconds;
  auto text = std::getenv("TROUPE_SENDER_GRACE");
  if (!text)
    return std::optional<milliseconds>{};
  // The same in any locale.
  std::string_view given{text};
  auto last = given.data() + given.size();
  double seconds = 0;
  auto [end, problem] = std::from_chars(given.data(), last, seconds);
  if (problem != std::errc{} || end != last || !(seconds >= 0) || seconds > 1e9)
    return failure(ec::invalid_config,
                   concat("TROUPE_SENDER_GRACE must be a number of seconds, at "
                          "most 1000000000, got '",
                          given, '\''));
  return milliseconds{static_cast<std::int64_t>(seconds * 1000)};
}

std::vector<int> default_preempt_signals() noexcept {
  return {SIGTERM, SIGUSR1, SIGHUP};
}

expected<void> validate(const run_config& x) {
  if (x.name)
    TROUPE_TRY_VOID(validate_name(*x.name));
  if (x.storage_path.empty())
    return failure(ec::invalid_config, "run.storage_path is empty");
  TROUPE_TRY_VOID(resolved_storage(x));
  if (x.failure.max_failures < -1)
    return failure(ec::invalid_config,
                   concat("run.failure.max_failures must be >= -1, got ",
                          x.failure.max_failures));
  if (x.failure.controller_failure_limit < -1)
    return failure(
      ec::invalid_config,
      concat("run.failure.controller_failure_limit must be >= -1, got ",
             x.failure.controller_failure_limit));
  TROUPE_TRY_VOID(validate(x.stop));
  if (x.callback_queue < 1)
    return failure(
      ec::invalid_config,
      concat("run.callback_queue must be >= 1, got ", x.callback_queue));
  TROUPE_TRY_VOID(validate_limits(x));
  for (auto& [name, value] : x.worker_env)
    if (name.empty() || (name + value).find('\0') != name.npos
        || name.find('=') != name.npos)
      return failure(ec::invalid_config,
                     "run.worker_env has '" + name
                       + "': the name of a variable cannot be empty or contain "
                         "'=', and neither name nor value can contain a zero "
                         "byte");
  TROUPE_TRY_VOID(validate_signals(x));
  if (auto grace = sender_grace_of_host(); !x.sender_grace && !grace)
    return tl::unexpected{grace.error()};
  return validate(x.checkpoint);
}

std::string generated_name(std::string_view kind) {
  auto now = std::chrono::system_clock::now();
  return concat("troupe_", kind, '-', local_text(now, "%Y%m%d-%H%M%S"), '-',
                getpid());
}

run_config resolve(run_config x) {
  if (auto path = resolved_storage(x))
    x.storage_path = std::move(*path);
  if (!x.sender_grace)
    x.sender_grace = sender_grace_of_host().value_or(std::nullopt);
  for (auto limit : {&x.callback_timeout, &x.start_timeout, &x.stop_timeout,
                     &x.exit_timeout, &x.stop_grace})
    *limit = std::min(*limit, longest_limit);
  for (auto limit :
       {&x.callback_limit, &x.report_timeout, &x.hang_timeout, &x.sender_grace})
    if (*limit)
      *limit = std::min(**limit, longest_limit);
  return x;
}

std::chrono::milliseconds longest_grace(const run_config& x) {
  if (!x.sender_grace)
    return longest_limit;
  return std::max(*x.sender_grace - x.stop_timeout,
                  std::chrono::milliseconds{0});
}

std::chrono::milliseconds host_grace(const run_config& x) {
  return std::min(x.stop_grace, x.sender_grace.value_or(x.stop_grace));
}

} // namespace troupe::internal
