#pragma once

#include "messages.hpp"

struct learner_config {
  int updates = 40'000; // at most
  int batch_size = 64;  // per learner
  double lr = 1e-3;
  int report_every = 100; // updates
  std::uint64_t seed = 1;

  TROUPE_FIELDS(updates, batch_size, lr, report_every, seed)
};

/// Starts the group of learners, which draw from *replay*; returns at once.
troupe::expected<troupe::run_handle>
start_learners(caf::actor_system& system, const exchange_actor& replay,
               const learner_config& cfg, const troupe::train_options& options);
