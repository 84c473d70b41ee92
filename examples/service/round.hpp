#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "messages.hpp"

// All that knows LibTorch: the model, and the run that trains it in a round.

/// A trained model.
class model {
public:
  /// Reads it from a checkpoint; throws `troupe::train_error`.
  explicit model(const troupe::checkpoint& files);
  ~model();

  float predict(const features& at) const;

private:
  struct layers;

  std::unique_ptr<layers> layers_;
};

/// What a round trains on.
struct round_config {
  std::vector<troupe::fs::path> shards; // files of samples
  std::optional<troupe::fs::path> from; // checkpoint of the round before
  int epochs = 10;
  int batch_size = 64; // per worker
  double lr = 2e-3;

  TROUPE_FIELDS(shards, from, epochs, batch_size, lr)
};

/// Whether LibTorch shows this process a GPU.
bool has_gpu();

/// Starts the run of a round; returns at once.
troupe::expected<troupe::run_handle>
start_round(caf::actor_system& system, const round_config& cfg,
            const troupe::train_options& options);
