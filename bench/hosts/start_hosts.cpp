// From the first line of a batch script of Slurm to the first collective of
// 4 hosts with 2 ranks each.

#include <fstream>

#include <ATen/Functions.h>

#include "bench/bare_group.hpp"
#include "bench/hosts/namespace_hosts.hpp"
#include "bench/hosts/torch_takes.hpp"
#include "bench/numbers.hpp"
#include "bench/processes.hpp"
#include "bench/shared_numbers.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int hosts = 4;
constexpr int local_ranks = 2;
constexpr int ranks = hosts * local_ranks;
constexpr int rounds = 5;

struct config {
  std::string folder;

  TROUPE_FIELDS(folder)

  std::string times() const { return folder + "/times"; }
  std::string begin() const { return folder + "/begin"; }
};

void loop(train_context& context, const config& cfg) {
  all_reduce(context, at::ones({1}));
  shared_numbers times{cfg.times(), ranks};
  times[static_cast<std::size_t>(context.rank())] = now();
}

/// Runs a batch script that does *work*; the seconds until its first
/// collective.
double time_batch(workplace& place, const namespace_hosts& network,
                  std::string (*work)(const config&)) {
  config cfg{place.new_path("start_hosts")};
  fs::create_directory(cfg.folder);
  auto script = cfg.folder + "/script";
  std::ofstream{script} << "#!/bin/sh\ndate +%s.%N >" << cfg.begin() << '\n'
                        << work(cfg) << '\n';
  network.call(concat("run sbatch --wait -N", hosts, " -o ", cfg.folder,
                      "/log ", script, " >/dev/null"));
  double begin = 0;
  std::ifstream{cfg.begin()} >> begin;
  return shared_numbers{cfg.times(), ranks}.max() - monotonic(begin);
}

std::string ours(const config& cfg) {
  return concat("exec ", own_program(), " --start ", cfg.folder);
}

std::string bare(const config& cfg) {
  std::string result;
  for (int host = 0; host < hosts; ++host)
    result +=
      concat("srun --overlap -N1 -n1 -w h", host + 1, ' ', own_program(),
             " --bare-start ", cfg.folder, ' ', host, " &\n");
  return result + "wait";
}

} // namespace

int start_hosts_driver(const std::string& folder) {
  torch_trainer{
    loop,
    config{folder},
    {.scaling = {.workers_per_host = local_ranks}, .run = quiet_run(folder)}}
    .fit()
    .value_or_throw();
  return 0;
}

int start_bare_host(const std::string& folder, int host) {
  config cfg{folder};
  run_bare_ranks(local_ranks, [&](int local) {
    auto rank = host * local_ranks + local;
    auto group = bare_gloo_group(folder + "/store", rank, ranks,
                                 concat("198.18.0.", host + 1));
    auto x = at::ones({1});
    all_reduce(*group, x);
    shared_numbers times{cfg.times(), ranks};
    times[static_cast<std::size_t>(rank)] = now();
  });
  return 0;
}

figure start_hosts_4(workplace& place) {
  namespace_hosts network{place, hosts, true};
  std::vector<double> with_troupe, without;
  for (int round = 0; round < rounds; ++round) {
    with_troupe.push_back(time_batch(place, network, ours));
    without.push_back(time_batch(place, network, bare));
  }
  return {median(with_troupe), median(without)};
}

} // namespace troupe::internal::bench
