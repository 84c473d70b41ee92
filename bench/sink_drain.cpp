#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <troupe/trackers.hpp>

#include "numbers.hpp"
#include "program.hpp"
#include "takes.hpp"
#include "tests/support/peer_server.hpp"
#include "troupe/callbacks/trackers/default_trackers.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int scalars_per_report = 20;

std::string metric_name(int i) {
  return "group/metric_" + std::to_string(i);
}

metrics values_of(std::uint64_t index) {
  metrics result;
  for (int i = 0; i < scalars_per_report; ++i)
    result[metric_name(i)] = 1.0 / static_cast<double>(index + 1) + i;
  return result;
}

void check(const expected<void>& x) {
  if (!x)
    throw std::runtime_error{x.error().message};
}

/// A finished run of *reports* reports that no tracker has seen.
std::unique_ptr<run_store> make_run(workplace& place, std::uint64_t reports) {
  auto store = run_store::open(resolve(place.new_run())).value();
  auto attempt = store->begin_attempt().value().attempt;
  for (std::uint64_t i = 0; i < reports; ++i) {
    report_batch batch;
    batch.index = i;
    batch.values = {values_of(i)};
    batch.parts.resize(1);
    check(store->append(attempt, batch));
  }
  store->finish(run_status_kind::finished).value();
  return store;
}

/// Scalars per second that *target* takes over the whole run.
double drain(workplace& place, std::shared_ptr<const tracker> target,
             std::uint64_t reports) {
  auto store = make_run(place, reports);
  auto config = place.new_run();
  config.metrics_csv = config.report_page = false;
  config.trackers = {std::move(target)};
  auto begin = now();
  auto unsent = tracker_set::start(trackers_of(config), store->description(),
                                   store->path(), {[](std::string) {}, {}})
                  .value()
                  ->finish();
  if (!unsent.empty())
    throw std::runtime_error{unsent.front()};
  return static_cast<double>(reports * scalars_per_report) / (now() - begin);
}

/// Scalars per second that a bare program prints as rows of text.
double print_bare(workplace& place, std::uint64_t reports) {
  std::ofstream out{place.new_path("bare")};
  auto begin = now();
  for (std::uint64_t i = 0; i < reports; ++i) {
    out << i;
    for (auto& [name, value] : values_of(i))
      out << ',' << value.number();
    out << '\n';
  }
  out.flush();
  return static_cast<double>(reports * scalars_per_report) / (now() - begin);
}

constexpr std::uint64_t file_reports = 10'000;
constexpr std::uint64_t server_reports = 1'500;

} // namespace

figure sink_drain_csv(workplace& place) {
  return {drain(place, csv_tracker(), file_reports),
          print_bare(place, file_reports)};
}

figure sink_drain_tensorboard(workplace& place) {
  return {drain(place, tensorboard_tracker(), file_reports),
          print_bare(place, file_reports)};
}

figure sink_drain_mlflow(workplace& place) {
  if (!test::peer_programs())
    throw skipped{"there is no MLflow: TROUPE_PEERS_PYTHON is not set, run "
                  "./dev bench"};
  test::peer_server server{
    {.command = {"mlflow", "server", "--host", "127.0.0.1", "--port", "{port}",
                 "--workers", "1", "--backend-store-uri",
                 "sqlite:///{home}/m.db"},
     .environment = {{"MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false"}}}};
  return {
    drain(place,
          mlflow_tracker({.tracking_uri = server.url(), .experiment = "bench"}),
          server_reports),
    std::nullopt};
}

} // namespace troupe::internal::bench
