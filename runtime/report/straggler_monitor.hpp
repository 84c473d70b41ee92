#pragma once

#include <optional>
#include <string>
#include <vector>

namespace troupe::internal {

/// Finds ranks that are persistently slower than the others.
///
/// A rank is slow in a step that took it `factor` times the median of the
/// others, and `least_excess` more. After `steps_to_name` such steps in a row
/// it is named, once; after as many good ones it may be named again.
class straggler_monitor {
public:
  static constexpr double factor = 2;
  static constexpr double least_excess = 0.005; ///< Seconds.
  static constexpr int steps_to_name = 8;

  explicit straggler_monitor(int world_size)
    : ranks_(static_cast<std::size_t>(world_size)) {}

  /// Every rank has made a step, in *seconds* by rank. Returns a sentence that
  /// names slow ranks, if there are any.
  std::optional<std::string> stepped(const std::vector<double>& seconds);

private:
  struct rank_state {
    int slow_steps = 0; ///< In a row; negative: good ones.
    bool named = false;
  };

  std::optional<std::string> count(const std::vector<double>& seconds);

  std::vector<rank_state> ranks_;
  std::vector<double> sorted_;
  bool counting_ = false; ///< Some rank was slow not long ago.
};

} // namespace troupe::internal
