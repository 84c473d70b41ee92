#pragma once

#include <string>
#include <utility>

#include <caf/result.hpp>
#include <caf/typed_actor.hpp>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/inspect_as.hpp"
#include "troupe/runtime/sweep/sweep_result.hpp"

// What a sweep in a service tells those that follow it.

namespace troupe {

TROUPE_INSPECT(trial, index, name, params, status, score, metrics, reports,
               seconds, reason)

template <class Inspector>
bool inspect(Inspector& f, score_order& x) {
  return internal::inspect_enum(f, x, score_order::min);
}

template <class Inspector>
bool inspect(Inspector& f, sweep_result& x) {
  return f.object(x).fields(
    f.field("trials", x.trials), internal::path_field(f, "path", x.path),
    f.field("error", x.error), f.field("stop_requested", x.stop_requested),
    f.field("order", x.order));
}

/// A trial of a sweep has ended, and has its score.
struct trial_ended {
  std::string sweep; ///< Its folder.
  trial content;
};

TROUPE_INSPECT(trial_ended, sweep, content)

/// A sweep is over, however it ended. Its name is free: one that did not come
/// to its end can be started again.
struct sweep_ended {
  sweep_result outcome;
};

TROUPE_INSPECT(sweep_ended, outcome)

/// An actor that follows a sweep.
using sweep_observer_actor = caf::typed_actor<
  // Once for each trial that ends from now on.
  caf::result<void>(trial_ended),
  // Once, at the end.
  caf::result<void>(sweep_ended)>;

} // namespace troupe
