#pragma once

#include <cstdint>
#include <vector>

#include "cart_pole.hpp"

/// The network that estimates what each action is worth: two hidden layers of
/// this size.
inline constexpr int hidden = 64;

/// Plays by the weights of that network, without LibTorch: it is small, and an
/// environment asks about one observation at a time.
class policy {
public:
  /// *weights* as `flat_weights` of the learner lists them. Throws
  /// `std::invalid_argument` for another number.
  explicit policy(std::vector<float> weights);

  /// The better action.
  int act(const observation& x) const;

private:
  std::vector<float> weights_;
};

/// Mean reward of *episodes* episodes that begin from *seed*.
double mean_reward(const policy& player, int episodes, std::uint64_t seed);
