#include <csignal>

#include <ATen/Functions.h>

#include "first_collective.hpp"
#include "numbers.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int rounds = 9;

struct config {
  std::string times; ///< Of each rank's first collective after the restart.
  std::string kill;  ///< Time of the kill.

  TROUPE_FIELDS(times, kill)
};

/// Rank 1 of the first attempt kills itself while rank 0 waits for it.
void loop(train_context& context, const config& cfg) {
  auto x = all_reduce(context, at::ones({1}));
  if (context.attempt() > 0) {
    shared_numbers times{cfg.times, 2};
    times[static_cast<std::size_t>(context.rank())] = now();
    return;
  }
  if (context.rank() == 1) {
    shared_numbers kill{cfg.kill, 1};
    kill[0] = now();
    std::raise(SIGKILL);
  }
  all_reduce(context, x);
}

double restart_once(workplace& place) {
  config cfg{place.new_path("times"), place.new_path("kill")};
  auto run = place.new_run();
  run.failure.max_failures = 1;
  torch_trainer{
    loop, cfg, {.scaling = {.num_workers = 2}, .run = std::move(run)}}
    .fit()
    .value_or_throw();
  shared_numbers kill{cfg.kill, 1};
  return seconds_to_first_collective(kill[0], cfg.times);
}

} // namespace

figure restart(workplace& place) {
  std::vector<double> ours, bare;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(restart_once(place));
    bare.push_back(seconds_of_bare_start(place));
  }
  return {median(ours) * 1e3, median(bare) * 1e3};
}

} // namespace troupe::internal::bench
