#include "troupe/runtime/sweep/sweep_result.hpp"

namespace troupe {

using namespace internal;

expected<trial> sweep_result::best() const {
  if (auto best = best_of(trials, order))
    return *best;
  return failure(ec::invalid_argument,
                 "no trial of the sweep has finished with a score");
}

} // namespace troupe
