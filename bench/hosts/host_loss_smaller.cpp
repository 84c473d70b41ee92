// A run of three hosts with one rank each, of which one loses its power. There
// is no other: the run continues with two ranks.

#include <algorithm>
#include <chrono>
#include <thread>

#include <ATen/Functions.h>

#include "bench/hosts/namespace_hosts.hpp"
#include "bench/hosts/torch_takes.hpp"
#include "bench/numbers.hpp"
#include "bench/shared_numbers.hpp"
#include "troupe/runtime/values/journal_entry.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int hosts = 3;
constexpr std::size_t left = hosts - 1; ///< Of the ranks.
constexpr int rounds = 3;

struct config {
  std::string folder;

  TROUPE_FIELDS(folder)

  std::string ticket() const { return folder + "/ticket"; }

  /// When rank 0 reported last; when each rank of the second attempt began its
  /// loop; when each had its first sum.
  shared_numbers times() const { return {folder + "/times", 1 + 2 * left}; }
};

/// The first attempt sums until it is ended.
void loop(train_context& context, const config& cfg) {
  auto times = cfg.times();
  auto rank = static_cast<std::size_t>(context.rank());
  if (context.attempt() > 0) {
    times[1 + rank] = now();
    all_reduce(context, at::ones({1}));
    times[1 + left + rank] = now();
    return;
  }
  for (;;) {
    all_reduce(context, at::ones({1}));
    context.report({{"x", 1}});
    if (rank == 0)
      times[0] = now();
  }
}

/// Seconds from the loss until it is in the journal, and from there on.
struct loss {
  double detection = 0;
  double attempt = 0;    ///< Until the next attempt begins.
  double ranks = 0;      ///< Until all its ranks are in their loops.
  double all_reduce = 0; ///< Until all have their first sum.
};

loss lose_host(workplace& place) {
  namespace_hosts network{place, hosts};
  config cfg{place.new_path("host_loss_smaller")};
  fs::create_directory(cfg.folder);
  auto times = cfg.times();
  for (int host = 2; host <= hosts; ++host)
    network.start_agent(host, cfg.ticket());
  auto driver = network.start(1, {own_program(), "--smaller", cfg.folder});
  while (times[0] == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  auto lost = now();
  network.call("crash h3");
  network.await(driver);
  auto detected = time_of_event(cfg.folder, event_kind::host_lost);
  auto last = [&](std::size_t from) {
    return std::ranges::max(times.part(from, left)) - detected;
  };
  return {detected - lost,
          time_of_event(cfg.folder, event_kind::attempt_begun) - detected,
          last(1), last(1 + left)};
}

/// The median of several losses, measured once for all rows.
double median_of(workplace& place, double loss::*part) {
  static const auto losses = [&] {
    std::vector<loss> result;
    for (int round = 0; round < rounds; ++round)
      result.push_back(lose_host(place));
    return result;
  }();
  std::vector<double> all;
  for (auto& x : losses)
    all.push_back(x.*part);
  return median(std::move(all));
}

} // namespace

int host_loss_smaller_driver(const std::string& folder) {
  config cfg{folder};
  auto run = quiet_run(folder);
  run.agent_ticket = cfg.ticket();
  torch_trainer{loop,
                cfg,
                {.scaling = {.num_workers = {left, hosts}, .agents = hosts - 1},
                 .run = std::move(run)}}
    .fit()
    .value_or_throw();
  return 0;
}

figure host_loss_smaller_detection(workplace& place) {
  return {median_of(place, &loss::detection), std::nullopt};
}

figure host_loss_smaller_attempt(workplace& place) {
  return {median_of(place, &loss::attempt) * 1e3, std::nullopt};
}

figure host_loss_smaller_ranks(workplace& place) {
  return {median_of(place, &loss::ranks) * 1e3, std::nullopt};
}

figure host_loss_smaller(workplace& place) {
  return {median_of(place, &loss::all_reduce) * 1e3, std::nullopt};
}

} // namespace troupe::internal::bench
