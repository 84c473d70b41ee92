#pragma once

#include <string>

#include <caf/result.hpp>
#include <caf/typed_actor.hpp>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/sweep/sweep_result.hpp"

// What a sweep in a service tells those that follow it.

namespace troupe {

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
