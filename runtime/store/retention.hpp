#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/config/run_config.hpp"

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

/// The checkpoints that a run has, in the order of their report indices. Knows
/// no file.
class checkpoint_registry {
public:
  explicit checkpoint_registry(checkpoint_config config,
                               std::vector<reported_checkpoint> all = {});

  /// Adds *x* and returns what retention takes out for it. An index that is not
  /// above the latest is `ec::conflict` (N3), as is a name in use.
  expected<std::vector<reported_checkpoint>> add(reported_checkpoint x);

  /// Forgets the checkpoint called *name*; false if there is none.
  bool remove(const std::string& name);

  const reported_checkpoint* find(const std::string& name) const noexcept;

  /// The one with the highest report index, nullptr if there is none.
  const reported_checkpoint* latest() const noexcept;

  /// Oldest first.
  const std::vector<reported_checkpoint>& all() const noexcept { return all_; }

  /// At most `num_to_keep`, ascending by score.
  std::vector<reported_checkpoint> best() const {
    return retention_.best(all_);
  }

private:
  retention retention_;
  std::vector<reported_checkpoint> all_;
};

} // namespace troupe
