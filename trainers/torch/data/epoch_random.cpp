#include "troupe/trainers/torch/data/epoch_random.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

namespace internal {

namespace {

/// SplitMix64's output function.
std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Draw number n is a function of the key and n alone.
class counter_generator {
public:
  explicit counter_generator(std::uint64_t key) noexcept : key_(key) {}

  std::uint64_t operator()() noexcept { return mix(key_ + ++count_ * golden); }

  /// Uniform in [0, *limit*) without bias: the few draws that would favor small
  /// numbers are rejected.
  std::uint64_t below(std::uint64_t limit) noexcept {
    auto product = wide{(*this)()} * limit;
    if (static_cast<std::uint64_t>(product) < limit) {
      auto unfair = (0 - limit) % limit;
      while (static_cast<std::uint64_t>(product) < unfair)
        product = wide{(*this)()} * limit;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

private:
  __extension__ using wide = unsigned __int128;
  static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

/// Mixed one after the other, so that (1, 2) and (2, 1) differ.
std::uint64_t key_of(std::uint64_t seed, std::uint64_t epoch) noexcept {
  return mix(mix(seed + 1) + epoch);
}

} // namespace

std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed,
                                      std::uint64_t epoch) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(size));
  std::iota(result.begin(), result.end(), std::int64_t{0});
  counter_generator random{key_of(seed, epoch)};
  for (auto left = result.size(); left > 1; --left)
    std::swap(result[left - 1], result[random.below(left)]);
  return result;
}

} // namespace internal

using namespace internal;

sample_order weighted_order(std::vector<double> weights, std::int64_t count) {
  if (count < 0)
    throw_invalid_argument("weighted_order was asked for ", count, " samples");
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!(weights[i] >= 0) || !std::isfinite(weights[i]))
      throw_invalid_argument("weighted_order was given ", weights[i],
                             " as weight of sample ", i);
  std::partial_sum(weights.begin(), weights.end(), weights.begin());
  auto sum = weights.empty() ? 0 : weights.back();
  if (!(sum > 0) || !std::isfinite(sum))
    throw_invalid_argument("the sum of the weights of weighted_order is ", sum);
  return [bounds = std::move(weights), sum, count](std::uint64_t seed,
                                                   std::uint64_t epoch) {
    counter_generator random{mix(key_of(seed, epoch) + 2)};
    std::vector<std::int64_t> result(static_cast<std::size_t>(count));
    for (auto& index : result) {
      // 53 bits: below 1 as a double.
      auto drawn = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
      auto found = std::ranges::upper_bound(bounds, drawn);
      if (found == bounds.end()) // *sum* itself, by rounding
        found = std::ranges::lower_bound(bounds, sum);
      index = found - bounds.begin();
    }
    return result;
  };
}

sample_generators::sample_generators(std::uint64_t seed,
                                     std::uint64_t epoch) noexcept
  : key_(mix(key_of(seed, epoch) + 1)) {} // not the key of the order

at::Generator sample_generators::of(std::int64_t index) const {
  auto key = mix(key_ + static_cast<std::uint64_t>(index));
  counter_generator random{key};
  // LibTorch's own seeding uses 32 bits of a seed, too few for the samples of
  // many epochs. This state is twisted before its first number.
  at::mt19937_data_pod state{};
  state.seed_ = key;
  state.left_ = 1;
  state.seeded_ = true;
  for (std::size_t i = 0; i < state.state_.size(); i += 2) {
    auto bits = random();
    state.state_[i] = static_cast<std::uint32_t>(bits);
    state.state_[i + 1] = static_cast<std::uint32_t>(bits >> 32);
  }
  at::mt19937 engine;
  engine.set_data(state);
  auto result = at::make_generator<at::CPUGeneratorImpl>(key);
  at::check_generator<at::CPUGeneratorImpl>(result)->set_engine(engine);
  return result;
}

} // namespace troupe
