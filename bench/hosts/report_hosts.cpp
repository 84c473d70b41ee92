// Reports of ranks on several hosts, beside a star barrier over TLS.

#include <troupe/train.hpp>

#include "bench/hosts/namespace_hosts.hpp"
#include "bench/hosts/takes.hpp"
#include "bench/hosts/tls_star.hpp"
#include "bench/shared_numbers.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int hosts = 4;
constexpr int ranks = hosts * 2;
constexpr int warm_up = 50;
constexpr int rounds = 10;
constexpr int per_round = 100;
constexpr std::size_t samples = rounds * per_round;

struct config {
  std::string folder;

  TROUPE_FIELDS(folder)

  std::string hub() const { return folder + "/hub"; }
  std::string times() const { return folder + "/times"; }
};

/// As the loop of `report_8`: reports and raw barriers in turn.
void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times(), 2 * samples * ranks};
  tls_star_rank raw{cfg.hub()};
  auto report = [&](int i) { context.report({{"step", i}, {"loss", 0.5}}); };
  for (int i = 0; i < warm_up; ++i) {
    report(i);
    raw.barrier();
  }
  auto at = 2 * samples * static_cast<std::size_t>(context.rank());
  for (int round = 0; round < rounds; ++round, at += per_round) {
    time_calls(per_round, times, at, report);
    raw.barrier();
    time_calls(per_round, times, at + samples, [&](int) { raw.barrier(); });
  }
}

} // namespace

void report_hosts_driver(const std::string& folder) {
  config cfg{folder};
  tls_star_hub hub{cfg.hub(), ranks};
  auto run = quiet_run(folder);
  run.agent_ticket = folder + "/ticket";
  data_parallel_trainer{loop,
                        cfg,
                        {.scaling = {.num_workers = ranks, .agents = hosts - 1},
                         .run = std::move(run)}}
    .fit()
    .value_or_throw();
}

figure report_hosts(workplace& place) {
  namespace_hosts network{place, hosts};
  config cfg{place.new_path("report_hosts")};
  fs::create_directory(cfg.folder);
  shared_numbers times{cfg.times(), 2 * samples * ranks};
  for (int host = 2; host <= hosts; ++host)
    network.start_agent(host, cfg.folder + "/ticket");
  network.await(
    network.start(1, {own_program(), "--driver", "report_hosts", cfg.folder}));
  std::vector<double> reports, barriers;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto mine = times.part(2 * samples * rank, samples);
    reports.insert(reports.end(), mine.begin(), mine.end());
    mine = times.part(2 * samples * rank + samples, samples);
    barriers.insert(barriers.end(), mine.begin(), mine.end());
  }
  return {median(reports) * 1e6, median(barriers) * 1e6};
}

} // namespace troupe::internal::bench
