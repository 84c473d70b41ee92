#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

/// Position and speed of the cart, angle and angular speed of the pole.
using observation = std::array<float, 4>;

/// The classic task of Barto, Sutton and Anderson (1983), with the numbers of
/// Gymnasium's CartPole-v1: keep a pole upright by pushing its cart. Each step
/// is worth 1; an episode has at most 500.
class cart_pole {
public:
  static constexpr int max_steps = 500;

  explicit cart_pole(std::uint64_t seed) : random_(seed) { reset(); }

  /// Begins another episode.
  void reset() {
    std::uniform_real_distribution<double> little{-0.05, 0.05};
    for (auto& x : state_)
      x = little(random_);
    steps_ = 0;
  }

  /// Pushes the cart to the left (0) or to the right (1) for 20 ms.
  void step(int action) {
    constexpr double gravity = 9.8, cart_mass = 1.0, pole_mass = 0.1;
    constexpr double half_length = 0.5, push = 10, seconds = 0.02;
    constexpr double mass = cart_mass + pole_mass;
    auto& [position, speed, angle, turn] = state_;
    auto sine = std::sin(angle), cosine = std::cos(angle);
    auto force = (action == 1 ? push : -push)
                 + pole_mass * half_length * turn * turn * sine;
    auto angular =
      (gravity * sine - cosine * force / mass)
      / (half_length * (4.0 / 3.0 - pole_mass * cosine * cosine / mass));
    auto linear = (force - pole_mass * half_length * angular * cosine) / mass;
    position += seconds * speed;
    speed += seconds * linear;
    angle += seconds * turn;
    turn += seconds * angular;
    ++steps_;
  }

  observation observe() const {
    return {static_cast<float>(state_[0]), static_cast<float>(state_[1]),
            static_cast<float>(state_[2]), static_cast<float>(state_[3])};
  }

  bool has_fallen() const {
    constexpr double degree = 3.14159265358979323846 / 180;
    return std::abs(state_[0]) > 2.4 || std::abs(state_[2]) > 12 * degree;
  }

  /// Whether the episode is over.
  bool is_over() const { return has_fallen() || steps_ >= max_steps; }

  /// Steps of this episode, which are its reward.
  int steps() const { return steps_; }

private:
  std::array<double, 4> state_{};
  int steps_ = 0;
  std::mt19937_64 random_;
};
