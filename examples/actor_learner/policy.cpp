#include "policy.hpp"

#include <algorithm>
#include <stdexcept>

namespace {

constexpr std::size_t size_of(int in, int out) {
  return static_cast<std::size_t>(in * out + out);
}

/// *out* = W *in* + b; returns what follows W and b.
const float* layer(const float* weights, const float* in, int ins, float* out,
                   int outs) {
  auto bias = weights + ins * outs;
  for (int i = 0; i < outs; ++i) {
    out[i] = bias[i];
    for (int j = 0; j < ins; ++j)
      out[i] += weights[i * ins + j] * in[j];
  }
  return bias + outs;
}

} // namespace

policy::policy(std::vector<float> weights) : weights_(std::move(weights)) {
  if (weights_.size()
      != size_of(4, hidden) + size_of(hidden, hidden) + size_of(hidden, 2))
    throw std::invalid_argument{"these are not the weights of a policy"};
}

int policy::act(const observation& x) const {
  std::array<float, hidden> first, second;
  std::array<float, 2> worth;
  auto relu = [](auto& xs) {
    for (auto& x : xs)
      x = std::max(x, 0.f);
  };
  auto rest = layer(weights_.data(), x.data(), 4, first.data(), hidden);
  relu(first);
  rest = layer(rest, first.data(), hidden, second.data(), hidden);
  relu(second);
  layer(rest, second.data(), hidden, worth.data(), 2);
  return worth[1] > worth[0] ? 1 : 0;
}

double mean_reward(const policy& player, int episodes, std::uint64_t seed) {
  cart_pole game{seed};
  int sum = 0;
  for (int i = 0; i < episodes; ++i, game.reset()) {
    while (!game.is_over())
      game.step(player.act(game.observe()));
    sum += game.steps();
  }
  return static_cast<double>(sum) / episodes;
}
