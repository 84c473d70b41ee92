#include "troupe/trainers/early_stopping.hpp"

#include <cmath>
#include <utility>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/train_error.hpp"

namespace troupe {

using namespace internal;

early_stopping::early_stopping(early_stopping_options options)
  : options_(std::move(options)) {
  if (options_.patience < 0)
    throw train_error{{ec::invalid_argument,
                       concat("early_stopping_options::patience is ",
                              options_.patience, ", but must be at least 0")}};
  if (!(options_.min_delta >= 0))
    throw train_error{
      {ec::invalid_argument, "early_stopping_options::min_delta is "
                               + to_string(metric_value{options_.min_delta})
                               + ", but must be at least 0"}};
}

bool early_stopping::step(const metrics& values) {
  return step(values.number(options_.monitor));
}

bool early_stopping::step(double value) {
  state_.reason.clear();
  auto what = options_.monitor.empty() ? std::string{"the value"}
                                       : "'" + options_.monitor + "'";
  what += " is " + to_string(metric_value{value});
  if (options_.check_finite && !std::isfinite(value)) {
    state_.reason = what;
    return true;
  }
  if (improves(value)) {
    state_.best = value;
    state_.waited = 0;
    return false;
  }
  if (++state_.waited < options_.patience)
    return false;
  state_.reason = concat(what, ", and was not better than ",
                         to_string(metric_value{state_.best.value_or(value)}),
                         " for ", state_.waited, " checks in a row");
  return true;
}

bool early_stopping::improves(double value) const {
  if (!state_.best)
    return !std::isnan(value);
  return options_.mode == score_order::min
           ? value + options_.min_delta < *state_.best
           : value - options_.min_delta > *state_.best;
}

} // namespace troupe
