#include "first_collective.hpp"

#include <ATen/Functions.h>

#include "bare_group.hpp"
#include "numbers.hpp"
#include "shared_numbers.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::bench {

namespace {

struct config {
  std::string times;

  TROUPE_FIELDS(times)
};

void loop(train_context& context, const config& cfg) {
  all_reduce(context, at::ones({1}));
  shared_numbers times{cfg.times, 2};
  times[static_cast<std::size_t>(context.rank())] = now();
}

} // namespace

void troupe_first_collective(run_config run, const std::string& times) {
  torch_trainer{
    loop, config{times}, {.scaling = {.num_workers = 2}, .run = std::move(run)}}
    .fit()
    .value_or_throw();
}

double seconds_to_first_collective(double start, const std::string& times) {
  return shared_numbers{times, 2}.max() - start;
}

double seconds_of_bare_start(workplace& place) {
  auto times = place.new_path("times");
  auto start = now();
  bare_first_collective(place.new_path("store"), times);
  return seconds_to_first_collective(start, times);
}

int bare_start_child(const std::string& store, const std::string& times) {
  bare_first_collective(store, times);
  return 0;
}

int start_cold_child(const std::string& storage, const std::string& times) {
  troupe_first_collective(quiet_run(storage), times);
  return 0;
}

} // namespace troupe::internal::bench
