// Barriers of 256 ranks on 64 hosts, beside those of a host with 4 ranks and of
// one with 64: the two levels that such a barrier consists of.

#include <fstream>

#include <troupe/train.hpp>

#include "bench/hosts/namespace_hosts.hpp"
#include "bench/hosts/takes.hpp"
#include "bench/program.hpp"
#include "bench/shared_numbers.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int hosts = 64;
constexpr int ranks_per_host = 4;
constexpr int warm_up = 5;
constexpr int rounds = 50;

/// The memory of all ranks, agents and spawners together.
constexpr double needed_mb = 6000;

/// What a driver is asked for, and what it needed.
enum order : std::size_t { wanted_hosts, wanted_ranks, peak_mb, order_size };

struct config {
  std::string folder;
  int ranks = 0;

  TROUPE_FIELDS(folder, ranks)

  std::string times() const { return folder + "/times"; }
  std::string order() const { return folder + "/order"; }
  std::string ticket() const { return folder + "/ticket"; }
  std::size_t samples() const {
    return static_cast<std::size_t>(ranks) * rounds;
  }
};

void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times(), cfg.samples()};
  for (int i = 0; i < warm_up; ++i)
    context.barrier();
  time_calls(rounds, times, static_cast<std::size_t>(context.rank() * rounds),
             [&](int) { context.barrier(); });
}

/// A line of *file* such as "VmHWM:  1024 kB", in MB; 0: there is none.
double memory_of(const std::string& file, const std::string& line) {
  std::ifstream in{file};
  double kb = 0;
  for (std::string word; in >> word;)
    if (word == line && in >> kb)
      return kb / 1024;
  return 0;
}

struct barriers {
  double seconds = 0;   ///< Median.
  double driver_mb = 0; ///< At most.
};

barriers run(workplace& place, namespace_hosts& network, int wanted, int each) {
  config cfg{place.new_path("barriers"), wanted * each};
  fs::create_directory(cfg.folder);
  shared_numbers times{cfg.times(), cfg.samples()};
  shared_numbers order{cfg.order(), order_size};
  order[wanted_hosts] = wanted;
  order[wanted_ranks] = cfg.ranks;
  std::vector<pid_t> agents;
  for (int host = 2; host <= wanted; ++host)
    agents.push_back(network.start_agent(host, cfg.ticket()));
  network.await(
    network.start(1, {own_program(), "--driver", "barriers", cfg.folder}));
  for (auto agent : agents)
    network.await(agent);
  return {median(times.part(0, times.size())), order[peak_mb]};
}

struct comparison {
  barriers many;
  double levels = 0; ///< Seconds of both, each on one host.
};

comparison compare(workplace& place) {
  if (memory_of("/proc/meminfo", "MemAvailable:") < needed_mb)
    throw skipped{"64 hosts with 4 ranks each need about 6 GB of memory"};
  namespace_hosts network{place, hosts};
  comparison result;
  result.many = run(place, network, hosts, ranks_per_host);
  for (int ranks : {ranks_per_host, hosts})
    result.levels += run(place, network, 1, ranks).seconds;
  return result;
}

const comparison& measured_barriers(workplace& place) {
  static const auto result = compare(place);
  return result;
}

} // namespace

void barriers_driver(const std::string& folder) {
  config cfg{folder};
  shared_numbers order{cfg.order(), order_size};
  cfg.ranks = static_cast<int>(order[wanted_ranks]);
  scaling_config scaling{.num_workers = cfg.ranks};
  scaling.agents = static_cast<int>(order[wanted_hosts]) - 1;
  auto run = quiet_run(folder);
  run.start_timeout = std::chrono::minutes{5};
  if (scaling.agents > 0)
    run.agent_ticket = cfg.ticket();
  data_parallel_trainer{loop, cfg, {.scaling = scaling, .run = std::move(run)}}
    .fit()
    .value_or_throw();
  order[peak_mb] = memory_of("/proc/self/status", "VmHWM:");
}

figure barrier_256(workplace& place) {
  auto& x = measured_barriers(place);
  return {x.many.seconds * 1e3, x.levels * 1e3};
}

figure barrier_256_memory(workplace& place) {
  return {measured_barriers(place).many.driver_mb, std::nullopt};
}

} // namespace troupe::internal::bench
