#include <stdexcept>
#include <vector>

#include <troupe/sweep.hpp>

#include "numbers.hpp"
#include "processes.hpp"
#include "takes.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int rounds = 3;
constexpr int trials = 8;
constexpr double training_s = 0.1;

struct config {
  double lr = 0;

  TROUPE_FIELDS(lr)
};

void train_bare() {
  for (auto end = now() + training_s; now() < end;)
    ;
}

void loop(train_context& context, const config& cfg) {
  train_bare();
  context.report({{"loss", cfg.lr}});
}

double seconds_of_sweep(workplace& place) {
  auto run = place.new_run();
  sweep search{data_parallel_trainer{
                 loop, config{}, {.scaling = {.num_workers = 1}, .run = run}},
               {{"lr", uniform(0, 1)}},
               {.metric = "loss", .trials = trials, .max_concurrent = 1}};
  auto begin = now();
  auto outcome = search.fit();
  auto result = now() - begin;
  if (outcome.error)
    throw std::runtime_error{outcome.error->message};
  return result;
}

double seconds_of_bare_loops() {
  auto begin = now();
  for (int i = 0; i < trials; ++i)
    run_bare_ranks(1, [](int) { train_bare(); });
  return now() - begin;
}

} // namespace

// One trial after the other, so that cores do not matter.
figure sweep_trials_per_s(workplace& place) {
  std::vector<double> ours, bare;
  for (int i = 0; i <= rounds; ++i) {
    auto seconds = seconds_of_sweep(place);
    auto reference = seconds_of_bare_loops();
    if (i == 0) // The first start of a program costs more.
      continue;
    ours.push_back(trials / seconds);
    bare.push_back(trials / reference);
  }
  return {median(ours), median(bare)};
}

} // namespace troupe::internal::bench
