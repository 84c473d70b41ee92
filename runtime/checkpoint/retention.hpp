#pragma once

#include <vector>

#include "troupe/runtime/checkpoint/reported_checkpoint.hpp"
#include "troupe/runtime/config/checkpoint_config.hpp"

namespace troupe {

/// Ranks checkpoints by score and says which may go.
///
/// Checkpoints without a usable score (metric missing, a text, NaN) rank below
/// all others, whatever the order; ties go to the newer. Without a score
/// attribute the newest is the best. Every list given is ordered oldest first.
class retention {
public:
  explicit retention(checkpoint_config config) : config_(std::move(config)) {}

  /// Positions in *all*, worst first.
  std::vector<std::size_t>
  ranking(const std::vector<reported_checkpoint>& all) const;

  /// The best, at most `num_to_keep`, ascending by score.
  std::vector<reported_checkpoint>
  best(const std::vector<reported_checkpoint>& all) const;

  /// Those that are neither among the best nor the latest.
  std::vector<reported_checkpoint>
  to_evict(const std::vector<reported_checkpoint>& all) const;

  /// Whether *x* has a usable score.
  bool is_scored(const reported_checkpoint& x) const;

  const checkpoint_config& config() const noexcept { return config_; }

private:
  std::size_t first_kept(std::size_t count) const noexcept;

  checkpoint_config config_;
};

} // namespace troupe
