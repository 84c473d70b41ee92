#include <troupe/train.hpp>

#include "numbers.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int ranks = 2;
constexpr int rounds = 15;

struct config {
  std::string times;

  TROUPE_FIELDS(times)
};

void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times, ranks};
  for (int i = 0; i < 20; ++i)
    context.report({{"step", i}});
  times[static_cast<std::size_t>(context.rank())] = now();
}

} // namespace

figure tail(workplace& place) {
  std::vector<double> tails;
  for (int round = 0; round < rounds; ++round) {
    config cfg{place.new_path("times")};
    shared_numbers times{cfg.times, ranks};
    auto outcome =
      data_parallel_trainer{
        loop, cfg, {.scaling = {.num_workers = ranks}, .run = place.new_run()}}
        .fit();
    auto end = now();
    outcome.value_or_throw();
    tails.push_back(end - times.max());
  }
  return {median(tails) * 1e3, std::nullopt};
}

} // namespace troupe::internal::bench
