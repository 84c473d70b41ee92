// A run of three hosts of which one loses its power while a fourth is spare.

#include <chrono>
#include <thread>

#include <troupe/train.hpp>

#include "bench/hosts/namespace_hosts.hpp"
#include "bench/hosts/takes.hpp"
#include "bench/shared_numbers.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int hosts = 3; ///< Of the run.

/// When rank 0 reported last, and met the others in the second attempt.
enum moment_of_loss : std::size_t { reported, met_again, moments };

struct config {
  std::string folder;

  TROUPE_FIELDS(folder)

  std::string times() const { return folder + "/times"; }
  std::string ticket() const { return folder + "/ticket"; }
};

/// The first attempt reports until it is ended.
void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times(), moments};
  auto note = [&](moment_of_loss x) {
    if (context.rank() == 0)
      times[x] = now();
  };
  if (context.attempt() > 0) {
    context.barrier();
    note(met_again);
    return;
  }
  for (;;) {
    context.report({{"x", 1}});
    note(reported);
  }
}

/// Measured once for both rows.
struct loss {
  double detection = 0;
  double restart = 0;
};

loss lose_host(workplace& place) {
  namespace_hosts network{place, hosts + 1};
  config cfg{place.new_path("host_loss")};
  fs::create_directory(cfg.folder);
  shared_numbers times{cfg.times(), moments};
  for (int host = 2; host <= hosts; ++host)
    network.start_agent(host, cfg.ticket());
  auto driver =
    network.start(1, {own_program(), "--driver", "host_loss", cfg.folder});
  while (times[reported] == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  network.start_agent(hosts + 1, cfg.ticket()); // It asks until one is gone.
  auto lost = now();
  network.call("crash h3");
  network.await(driver);
  auto failed = time_of_event(cfg.folder, event_kind::ranks_failed);
  return {failed - lost, times[met_again] - failed};
}

const loss& measured_loss(workplace& place) {
  static const auto result = lose_host(place);
  return result;
}

} // namespace

void host_loss_driver(const std::string& folder) {
  config cfg{folder};
  auto run = quiet_run(folder);
  run.agent_ticket = cfg.ticket();
  run.failure.max_failures = 1;
  data_parallel_trainer{loop,
                        cfg,
                        {.scaling = {.num_workers = hosts, .agents = hosts - 1},
                         .run = std::move(run)}}
    .fit()
    .value_or_throw();
}

figure host_loss_detection(workplace& place) {
  return {measured_loss(place).detection, std::nullopt};
}

figure host_loss_restart(workplace& place) {
  return {measured_loss(place).restart * 1e3, std::nullopt};
}

} // namespace troupe::internal::bench
