#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/reported_checkpoint.hpp"
#include "troupe/runtime/checkpoint/retention.hpp"

namespace troupe {

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
