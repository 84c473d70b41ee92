#include <troupe/trackers.hpp>
#include <troupe/train.hpp>

#include "numbers.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"

namespace troupe::bench {

namespace {

constexpr int warm_up = 100;
constexpr int reports = 3000;
constexpr int pairs = 4;

struct config {
  std::string times;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(times);
  }
};

/// `times` has the seconds of each report of rank 0.
void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times, reports};
  auto report = [&](int i) {
    context.report({{"step", i}, {"train/loss", 0.5 / (i + 1)}, {"lr", 1e-3}});
  };
  for (int i = 0; i < warm_up; ++i)
    report(i);
  for (int i = 0; i < reports; ++i) {
    auto before = now();
    report(i);
    if (context.rank() == 0)
      times[static_cast<std::size_t>(i)] = now() - before;
  }
}

std::vector<double> run(workplace& place, bool with_sinks) {
  config cfg{place.new_path("times")};
  shared_numbers times{cfg.times, reports};
  auto run = place.new_run();
  run.report_page = false;
  run.metrics_csv = with_sinks;
  if (with_sinks)
    run.callbacks = {result_json_tracker(), tensorboard_tracker(),
                     mlflow_tracker({.tracking_uri = place.new_path("mlruns"),
                                     .experiment = "bench"})};
  data_parallel_trainer{loop, cfg, {.scaling = {.num_workers = 2}, .run = run}}
    .fit()
    .value_or_throw();
  return times.part(0, reports);
}

} // namespace

figure report_with_sinks(workplace& place) {
  std::vector<double> with, without;
  for (int i = 0; i < pairs; ++i)
    for (bool sinks : {i % 2 == 0, i % 2 != 0}) {
      auto times = run(place, sinks);
      auto& all = sinks ? with : without;
      all.insert(all.end(), times.begin(), times.end());
    }
  return {median(with) * 1e6, median(without) * 1e6};
}

} // namespace troupe::bench
