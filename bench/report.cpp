#include <string>
#include <utility>

#include <troupe/train.hpp>

#include "numbers.hpp"
#include "shared_numbers.hpp"
#include "star_barrier.hpp"
#include "takes.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int warm_up = 100;

struct config {
  std::string hub;
  std::string times;
  int rounds = 0;
  int per_round = 0;
  int keys = 0; ///< Metrics of a report; 0: two.

  TROUPE_FIELDS(hub, times, rounds, per_round, keys)

  std::size_t samples() const {
    return static_cast<std::size_t>(rounds) * per_round;
  }
};

/// Rounds of reports and of raw barriers in turn. For each rank, `times` holds
/// its reports, then its barriers.
void loop(train_context& context, const config& cfg) {
  auto n = cfg.samples();
  shared_numbers times{cfg.times, 2 * n * context.world_size()};
  star_rank raw{cfg.hub};
  auto report = [&](int i) { context.report({{"step", i}, {"loss", 0.5}}); };
  for (int i = 0; i < warm_up; ++i) {
    report(i);
    raw.barrier();
  }
  auto at = 2 * n * context.rank();
  for (int round = 0; round < cfg.rounds; ++round, at += cfg.per_round) {
    time_calls(cfg.per_round, times, at, report);
    raw.barrier();
    time_calls(cfg.per_round, times, at + n, [&](int) { raw.barrier(); });
  }
}

struct samples {
  std::vector<double> reports;
  std::vector<double> barriers;
};

/// Gradient norms, as a large model reports them.
metrics norms(int keys) {
  metrics result;
  for (int i = 0; i < keys; ++i)
    result["gradient_norm/layer_" + std::to_string(i)] = 0.5 * i;
  return result;
}

/// Rounds of reports of `keys` metrics and of a tenth of them in turn.
void wide_loop(train_context& context, const config& cfg) {
  auto n = cfg.samples();
  shared_numbers times{cfg.times, 2 * n};
  auto wide = norms(cfg.keys);
  auto narrow = norms(cfg.keys / 10);
  context.report(wide);
  for (std::size_t at = 0; at < n; at += cfg.per_round) {
    time_calls(cfg.per_round, times, at, [&](int) { context.report(wide); });
    time_calls(cfg.per_round, times, at + n,
               [&](int) { context.report(narrow); });
  }
}

samples run(workplace& place, int ranks, int rounds, int per_round) {
  config cfg{"troupe_bench" + place.new_path("hub"), place.new_path("times"),
             rounds, per_round};
  auto n = cfg.samples();
  shared_numbers times{cfg.times, 2 * n * ranks};
  star_hub hub{cfg.hub, ranks};
  data_parallel_trainer{
    loop, cfg, {.scaling = {.num_workers = ranks}, .run = place.new_run()}}
    .fit()
    .value_or_throw();
  samples result;
  for (int rank = 0; rank < ranks; ++rank) {
    auto mine = times.part(2 * n * rank, n);
    result.reports.insert(result.reports.end(), mine.begin(), mine.end());
    mine = times.part(2 * n * rank + n, n);
    result.barriers.insert(result.barriers.end(), mine.begin(), mine.end());
  }
  return result;
}

figure report_p50(workplace& place, int ranks) {
  auto x = run(place, ranks, 10, 200);
  return {median(x.reports) * 1e6, median(x.barriers) * 1e6};
}

/// Calls per second of the median round of rank 0.
double rate(const std::vector<double>& seconds, int rounds, int per_round) {
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round) {
    double sum = 0;
    for (int i = 0; i < per_round; ++i)
      sum += seconds[static_cast<std::size_t>(round * per_round + i)];
    rates.push_back(per_round / sum);
  }
  return median(rates);
}

} // namespace

figure report_2(workplace& place) {
  return report_p50(place, 2);
}

figure report_8(workplace& place) {
  return report_p50(place, 8);
}

figure report_10k_keys(workplace& place) {
  config cfg{{}, place.new_path("times"), 10, 10, 10'000};
  auto n = cfg.samples();
  shared_numbers times{cfg.times, 2 * n};
  data_parallel_trainer{
    wide_loop, cfg, {.scaling = {.num_workers = 1}, .run = place.new_run()}}
    .fit()
    .value_or_throw();
  // Ten times the metrics may cost ten times the time.
  return {median(times.part(0, n)) * 1e3, median(times.part(n, n)) * 1e4};
}

figure reports_per_s(workplace& place) {
  constexpr int rounds = 5;
  constexpr int per_round = 2000;
  auto x = run(place, 2, rounds, per_round);
  return {rate(x.reports, rounds, per_round),
          rate(x.barriers, rounds, per_round)};
}

} // namespace troupe::internal::bench
