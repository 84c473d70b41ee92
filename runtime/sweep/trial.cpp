#include "troupe/runtime/sweep/trial.hpp"

#include <cstdio>

#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view name_prefix = "trial-";

} // namespace

std::string trial_name(std::size_t index) {
  char digits[24];
  std::snprintf(digits, sizeof(digits), "%04zu", index);
  return std::string{name_prefix} + digits;
}

bool is_trial_name(std::string_view name) noexcept {
  return name.starts_with(name_prefix)
         && is_digits(name.substr(name_prefix.size()));
}

const trial* best_of(const std::vector<trial>& trials, score_order order) {
  const trial* result = nullptr;
  for (auto& x : trials)
    if (x.score && x.status == run_status_kind::finished
        && (!result || is_better(*x.score, *result->score, order)))
      result = &x;
  return result;
}

} // namespace troupe::internal
