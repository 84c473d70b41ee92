#include <stdexcept>

#include <ATen/Functions.h>

#include "bare_group.hpp"
#include "numbers.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::bench {

namespace {

constexpr std::size_t rounds = 10;
constexpr std::size_t per_round = 5;
constexpr std::int64_t floats = (25 << 20) / 4;

struct config {
  std::string store;
  std::string times;

  TROUPE_FIELDS(store, times)
};

/// Rounds of `local` and of Gloo in turn. `times` holds the seconds of rank 0
/// over `local`, then those over Gloo.
void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times, 2 * rounds * per_round};
  auto local = data_plane(context)->group;
  auto gloo = bare_gloo_group(cfg.store, context.rank(), context.world_size());
  auto x = at::ones({floats});
  auto time_round = [&](c10d::ProcessGroup& group, std::size_t at) {
    for (std::size_t i = 0; i < per_round; ++i) {
      x.fill_(1); // avoids overflowing sums
      auto before = now();
      all_reduce(group, x);
      if (context.rank() == 0)
        times[at + i] = now() - before;
    }
  };
  for (std::size_t warm_up = 0; warm_up < 2; ++warm_up) {
    time_round(*local, 0);
    time_round(*gloo, 0);
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    time_round(*local, round * per_round);
    time_round(*gloo, (rounds + round) * per_round);
  }
  if (!x.eq(context.world_size()).all().item<bool>())
    throw std::runtime_error{"the sum over all ranks is wrong"};
}

} // namespace

figure all_reduce(workplace& place) {
  constexpr auto samples = rounds * per_round;
  config cfg{place.new_path("store"), place.new_path("times")};
  shared_numbers times{cfg.times, 2 * samples};
  torch_trainer{loop,
                cfg,
                {.scaling = {.num_workers = 2},
                 .run = place.new_run(),
                 .torch = {.backend = backend::local}}}
    .fit()
    .value_or_throw();
  return {median(times.part(0, samples)) * 1e3,
          median(times.part(samples, samples)) * 1e3};
}

} // namespace troupe::internal::bench
