#include "troupe/runtime/sweep/searcher.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <boost/random/sobol.hpp>

#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

/// A place in [0, 1) with the upper bits of *x*.
double place_of(std::uint64_t x) {
  return std::ldexp(static_cast<double>(x >> 11), -53);
}

/// Random bits that belong to *seed* and *index* alone.
std::mt19937_64 generator_of(std::uint64_t seed, std::uint64_t index) {
  auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  auto high = [](std::uint64_t x) {
    return static_cast<std::uint32_t>(x >> 32);
  };
  std::seed_seq all{low(seed), high(seed), low(index), high(index)};
  return std::mt19937_64{all};
}

/// The params of a trial: the values of *space* at *places*.
metrics params_at(const search_space& space,
                  const std::vector<double>& places) {
  metrics result;
  for (std::size_t i = 0; i < space.size(); ++i)
    result[space[i].name] = value_at(space[i].range, places[i]);
  return result;
}

class grid_searcher final : public searcher {
public:
  explicit grid_searcher(int steps) : steps_(steps) {}

  std::string name() const override { return concat("grid, steps ", steps_); }

  expected<void> validate(const search_space&) const override {
    if (steps_ < 1)
      return failure(ec::invalid_config,
                     concat("grid_search: steps must be >= 1, got ", steps_));
    return {};
  }

  std::optional<metrics> ask(const search_space& space,
                             std::size_t index) override {
    metrics result;
    for (auto i = space.size(); i > 0; --i) {
      auto& param = space[i - 1];
      auto values = grid_values(param.range, steps_);
      result[param.name] = values[index % values.size()];
      index /= values.size();
    }
    if (index > 0)
      return std::nullopt;
    return result;
  }

  std::optional<std::size_t> count(const search_space& space) const override {
    std::size_t result = 1;
    for (auto& param : space) {
      auto values = grid_values(param.range, steps_).size();
      if (values > 0
          && result > std::numeric_limits<std::size_t>::max() / values)
        return std::nullopt;
      result *= values;
    }
    return result;
  }

private:
  int steps_;
};

class random_searcher final : public searcher {
public:
  explicit random_searcher(std::uint64_t seed) : seed_(seed) {}

  std::string name() const override { return concat("random, seed ", seed_); }

  std::optional<metrics> ask(const search_space& space,
                             std::size_t index) override {
    auto bits = generator_of(seed_, index);
    std::vector<double> places;
    while (places.size() < space.size())
      places.push_back(place_of(bits()));
    return params_at(space, places);
  }

  bool is_finite() const override { return false; }

private:
  std::uint64_t seed_;
};

class sobol_searcher final : public searcher {
public:
  explicit sobol_searcher(std::uint64_t seed) : seed_(seed) {}

  std::string name() const override { return concat("sobol, seed ", seed_); }

  std::optional<metrics> ask(const search_space& space,
                             std::size_t index) override {
    boost::random::sobol points{space.size()};
    points.discard(index * space.size());
    auto shift = generator_of(seed_, 0);
    std::vector<double> places;
    // A digital shift keeps the sequence as even as it is.
    while (places.size() < space.size())
      places.push_back(place_of(points() ^ shift()));
    return params_at(space, places);
  }

  bool is_finite() const override { return false; }

private:
  std::uint64_t seed_;
};

} // namespace

std::shared_ptr<searcher> grid_search(int steps) {
  return std::make_shared<grid_searcher>(steps);
}

std::shared_ptr<searcher> random_search(std::uint64_t seed) {
  return std::make_shared<random_searcher>(seed);
}

std::shared_ptr<searcher> sobol_search(std::uint64_t seed) {
  return std::make_shared<sobol_searcher>(seed);
}

} // namespace troupe
