#include "troupe/runtime/sweep/trial.hpp"

#include <cstdio>

namespace troupe::internal {

std::string trial_name(std::size_t index) {
  char text[32];
  std::snprintf(text, sizeof(text), "trial-%04zu", index);
  return text;
}

const trial* best_of(const std::vector<trial>& trials, score_order order) {
  const trial* result = nullptr;
  for (auto& x : trials)
    if (x.score && x.status == run_status_kind::finished
        && (!result
            || (order == score_order::max ? *x.score > *result->score
                                          : *x.score < *result->score)))
      result = &x;
  return result;
}

} // namespace troupe::internal
