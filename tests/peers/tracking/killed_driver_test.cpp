// The driver is killed between two steps of its trackers, and a new one takes
// the run up: every report is in every tracker once.

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/peers/mlflow/mlflow_fixture.hpp"
#include "tests/support/child.hpp"
#include "tests/support/peers.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/callbacks/json_lines/result_json.hpp"
#include "troupe/callbacks/mlflow/mlflow.hpp"
#include "troupe/callbacks/tensorboard/tensorboard.hpp"
#include "troupe/callbacks/trackers/default_trackers.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/train.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

constexpr int reports = 20;

/// Reports what is missing, as loops do that resume without a checkpoint: the
/// index of the next report shows how far the run came.
void report_the_rest(train_context& context) {
  for (auto i = rank_access{context}.facts().first_report; i < reports; ++i)
    context.report({{"loss", 1.0 / static_cast<double>(i + 1)}});
}

run_config config_of(const fs::path& storage, const std::string& mlflow) {
  // Many small steps, one after another.
  tracker_options small{.interval = std::chrono::milliseconds{1},
                        .max_batch = 3};
  run_config config;
  config.name = "r";
  config.storage_path = storage;
  config.quiet = true;
  config.report_page = false;
  config.trackers = {
    csv_tracker({}, small), result_json_tracker({}, small),
    tensorboard_tracker({}, small),
    mlflow_tracker({.tracking_uri = mlflow, .experiment = "killed"}, small)};
  return config;
}

/// The run in a process of its own, which dies at *failpoint*. Whether it did.
bool run(const fs::path& storage, const std::string& mlflow,
         const std::string& failpoint) {
  // A driver that dies while its trackers finish leaves a run that is over.
  auto before = result::from_path(storage / "r");
  if (before && before->status == run_status_kind::finished)
    return false;
  auto status = run_in_child([&] {
    if (!arm_failpoint(failpoint))
      throw std::invalid_argument{failpoint};
    auto result = data_parallel_trainer{report_the_rest,
                                        {.scaling = {.num_workers = 0},
                                         .run = config_of(storage, mlflow)}}
                    .fit();
    result.value_or_throw();
  });
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
    return true;
  EXPECT_EQ(status, 0);
  return false;
}

/// Sends what the last driver left, as troupe sync does.
void sync(const fs::path& storage, const std::string& mlflow) {
  auto config = config_of(storage, mlflow);
  auto path = storage / "r";
  auto notes = [](const std::string& text) {
    if (!text.starts_with("the run is over and waits")) // The server is slow.
      ADD_FAILURE() << text;
  };
  tracker_set::start(trackers_of(config), read_description(path).value(), path,
                     {notes, {}})
    .value()
    ->finish();
}

std::vector<std::int64_t> all_steps() {
  std::vector<std::int64_t> result(reports);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

std::vector<std::int64_t> numbers_in(const std::string& text) {
  std::istringstream in{text};
  return {std::istream_iterator<std::int64_t>{in}, {}};
}

/// Steps of *run* as each tracker's own reader has them, one line a tracker.
std::vector<std::string> steps_by_tracker(const fs::path& run,
                                          const std::string& mlflow) {
  auto script = R"(
import csv, json, sys, logging
logging.disable(logging.WARNING)
run, uri = sys.argv[1:]
with open(run + '/metrics.csv') as f:
    print(*[row['step'] for row in csv.DictReader(f)])
with open(run + '/result.json') as f:
    print(*[json.loads(line)['step'] for line in f])
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(run + '/tensorboard', size_guidance={'scalars': 0}).Reload()
print(*[x.step for x in events.Scalars('loss')])
import mlflow
client = mlflow.MlflowClient(tracking_uri=uri)
uid = json.load(open(run + '/run.json'))['id']
experiment = client.get_experiment_by_name('killed').experiment_id
found = client.search_runs([experiment], "tags.`troupe.run_uid` = '%s'" % uid)
assert len(found) == 1, found
assert found[0].info.status == 'FINISHED', found[0].info.status
print(*[m.step for m in client.get_metric_history(found[0].info.run_id, 'loss')])
)";
  auto result = run_peer_script(script, {run.string(), mlflow});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  std::vector<std::string> lines;
  std::istringstream in{result.output};
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

} // namespace

class killed_driver_test : public testing::TestWithParam<const char*> {};

TEST_P(killed_driver_test, every_tracker_gets_every_report_once) {
  TROUPE_NEEDS_PEERS();
  auto mlflow = shared_mlflow().url();
  temporary_folder storage;
  // Every other pass of the point, until a driver gets through.
  int deaths = 0;
  for (int pass = 2; run(storage.path(), mlflow,
                         std::string{GetParam()} + ':' + std::to_string(pass));
       pass += 5)
    ++deaths;
  EXPECT_GT(deaths, 0);
  sync(storage.path(), mlflow);
  auto found = steps_by_tracker(storage / "r", mlflow);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(numbers_in(found[0]), all_steps()) << "metrics.csv";
  EXPECT_EQ(numbers_in(found[1]), all_steps()) << "result.json";
  EXPECT_EQ(numbers_in(found[2]), all_steps()) << "TensorBoard";
  EXPECT_EQ(numbers_in(found[3]), all_steps()) << "MLflow";
}

INSTANTIATE_TEST_SUITE_P(points, killed_driver_test,
                         testing::Values("sink_feed.log", "sink_feed.save"),
                         [](const auto& info) {
                           return std::string{info.param}.substr(10);
                         });
