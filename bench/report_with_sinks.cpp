#include <troupe/trackers.hpp>
#include <troupe/train.hpp>

#include "numbers.hpp"
#include "processes.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"
#include "tests/support/loopback_server.hpp"
#include "troupe/runtime/process/usable_cores.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int warm_up = 500; // Trackers start meanwhile.

struct config {
  std::string times;
  int reports = 0;

  TROUPE_FIELDS(times, reports)
};

/// `times` holds the seconds of each report of rank 0.
void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times, static_cast<std::size_t>(cfg.reports)};
  auto report = [&](int i) {
    context.report({{"step", i}, {"train/loss", 0.5 / (i + 1)}, {"lr", 1e-3}});
  };
  for (int i = 0; i < warm_up; ++i)
    report(i);
  for (int i = 0; i < cfg.reports; ++i) {
    auto before = now();
    report(i);
    if (context.rank() == 0)
      times[static_cast<std::size_t>(i)] = now() - before;
  }
}

using trackers = std::vector<std::shared_ptr<const tracker>>;

/// The seconds of each report of a run of *reports*.
std::vector<double> run(workplace& place, int reports, const trackers& to) {
  config cfg{place.new_path("times"), reports};
  auto count = static_cast<std::size_t>(reports);
  shared_numbers times{cfg.times, count};
  auto run = place.new_run();
  run.report_page = false;
  run.metrics_csv = false;
  run.trackers = to;
  data_parallel_trainer{loop, cfg, {.scaling = {.num_workers = 2}, .run = run}}
    .fit()
    .value_or_throw();
  return times.part(0, count);
}

/// The median report of *runs* runs with the trackers that *make* makes for
/// each, and of as many without, in turn.
template <class Make>
figure beside_none(workplace& place, int runs, int reports, Make make) {
  std::vector<double> with, without;
  for (int i = 0; i < runs; ++i)
    for (bool tracked : {i % 2 == 0, i % 2 != 0}) {
      auto times = run(place, reports, tracked ? make() : trackers{});
      auto& all = tracked ? with : without;
      all.insert(all.end(), times.begin(), times.end());
    }
  return {median(with) * 1e6, median(without) * 1e6};
}

/// Pins this thread, and those it starts, to the first of its cores.
class one_core {
public:
  one_core() { pin({all_.front()}); }
  ~one_core() { pin(all_); }

  one_core(const one_core&) = delete;
  one_core& operator=(const one_core&) = delete;

private:
  std::vector<int> all_ = own_cores().numbers;
};

} // namespace

figure report_with_sinks(workplace& place) {
  return beside_none(place, 4, 3000, [&] {
    return trackers{csv_tracker(), result_json_tracker(), tensorboard_tracker(),
                    mlflow_tracker({.tracking_uri = place.new_path("mlruns"),
                                    .experiment = "bench"})};
  });
}

figure report_with_hung_tracker(workplace& place) {
  test::loopback_server hung{[](const test::loopback_request&) {
    return test::loopback_reply{.fault = test::reply_fault::hang};
  }};
  // The difference between runs is larger than the effect measured here, mostly
  // because of the core that the driver gets.
  one_core pinned;
  return beside_none(place, 40, 1000, [&] {
    return trackers{
      mlflow_tracker({.tracking_uri = hung.url()},
                     {.finish_timeout = std::chrono::milliseconds{0}})};
  });
}

} // namespace troupe::internal::bench
