// The trackers of a sweep: every trial has its own, and MLflow and W&B show all
// of them together, also after the sweep's driver was killed.

#include <csignal>
#include <set>

#include <gmock/gmock.h>

#include "tests/integration/run/victim.hpp"
#include "tests/peers/mlflow/mlflow_fixture.hpp"
#include "tests/support/child.hpp"
#include "tests/support/peers.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/mlflow/mlflow.hpp"
#include "troupe/callbacks/tensorboard/tensorboard.hpp"
#include "troupe/callbacks/wandb/wandb.hpp"
#include "troupe/callbacks/wandb/wandb_files.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/sweep.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

constexpr int trials = 4;

struct settings {
  double lr = 0;
  bool dies = false;

  TROUPE_FIELDS(lr, dies)
};

/// With `dies`, takes the program along once MLflow has the trial's first
/// report. Reports what is missing of three, as loops do that resume without a
/// checkpoint.
void train(train_context& context, const settings& cfg) {
  auto sinks = context.run_path() / "sinks";
  for (auto i = rank_access{context}.facts().first_report; i < 3; ++i) {
    context.report({{"loss", cfg.lr / static_cast<double>(i + 1)}});
    if (!cfg.dies)
      continue;
    wait_for(sinks, [&] { return fs::exists(sinks / "mlflow.offset"); });
    ::raise(SIGKILL);
  }
}

class sweep_trackers_test : public testing::Test {
protected:
  void SetUp() override { TROUPE_NEEDS_PEERS(); }

  sweep_result search(const std::string& mlflow, bool dies = false) const {
    tracker_options small{.interval = std::chrono::milliseconds{1},
                          .max_batch = 2};
    run_config config;
    config.name = "search";
    config.storage_path = storage_.path();
    config.quiet = true;
    config.report_page = false;
    config.trackers = {
      mlflow_tracker({.tracking_uri = mlflow, .experiment = experiment()},
                     small),
      wandb_tracker({.project = "p", .mode = wandb_mode::offline}, small),
      tensorboard_tracker({}, small)};
    return sweep{
      data_parallel_trainer{train,
                            settings{.dies = dies},
                            {.scaling = {.num_workers = 0}, .run = config}},
      {{"lr", uniform(0, 1)}},
      {.metric = "loss", .trials = trials, .max_concurrent = 2}}
      .fit();
  }

  /// The sweep in a process of its own. Returns whether that was killed.
  bool is_killed(const std::string& mlflow, bool dies) const {
    auto status = run_in_child([&] {
      if (auto x = search(mlflow, dies); x.error)
        throw std::runtime_error{x.error->message};
    });
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
      return true;
    EXPECT_EQ(status, 0);
    return false;
  }

  static std::string experiment() {
    return testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  /// What MLflow's own client says about all runs of the experiment.
  static void expect_nested(const std::string& mlflow) {
    auto result = run_peer_script(R"(
import sys, logging
logging.disable(logging.WARNING)
import mlflow
client = mlflow.MlflowClient(tracking_uri=sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2]).experiment_id
runs = client.search_runs([experiment])
parents = [x for x in runs if 'mlflow.parentRunId' not in x.data.tags]
children = [x for x in runs if 'mlflow.parentRunId' in x.data.tags]
print(*[(x.info.run_name, x.info.status) for x in parents])
print(*sorted((x.info.run_name, x.info.status) for x in children))
print({x.data.tags['mlflow.parentRunId'] for x in children} == {x.info.run_id for x in parents})
print(*[len(client.get_metric_history(x.info.run_id, 'loss')) for x in children])
)",
                                  {mlflow, experiment()},
                                  {{"MLFLOW_ALLOW_FILE_STORE", "true"}});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(result.output,
              "('search', 'FINISHED')\n"
              "('trial-0000', 'FINISHED') ('trial-0001', 'FINISHED') "
              "('trial-0002', 'FINISHED') ('trial-0003', 'FINISHED')\n"
              "True\n3 3 3 3\n");
  }

  fs::path path() const { return storage_ / "search"; }

  temporary_folder storage_;
};

} // namespace

TEST_F(sweep_trackers_test, a_killed_sweep_has_one_parent_in_mlflow) {
  auto mlflow = shared_mlflow().url();
  for (auto i = 0; i < 2; ++i)
    EXPECT_TRUE(is_killed(mlflow, true));
  EXPECT_FALSE(is_killed(mlflow, false));
  expect_nested(mlflow);
}

TEST_F(sweep_trackers_test, nests_in_a_file_store_beside_the_sweep) {
  auto x = search("");
  ASSERT_FALSE(x.error) << x.error->message;
  expect_nested((storage_ / "mlruns").string());
}

TEST_F(sweep_trackers_test, trials_are_a_group_in_wandb) {
  auto x = search((storage_ / "mlruns").string());
  ASSERT_FALSE(x.error) << x.error->message;
  std::set<std::string> ids;
  for (auto& one : x.trials) {
    auto run = x.result_of(one);
    ASSERT_TRUE(run);
    auto id = read_description(run->path)->id;
    auto files = wandb_fragments(run->path / "wandb", id).value();
    ASSERT_EQ(files.size(), 1u);
    auto read = run_peer(
      {"wandb", "leet", "inspect", "--json", files.back().path.string()});
    EXPECT_EQ(read.exit_code, 0) << read.output;
    EXPECT_THAT(read.output, testing::HasSubstr(R"("run_group":"search")"));
    EXPECT_THAT(read.output, testing::HasSubstr(R"("job_type":"trial")"));
    ids.insert(id);
    EXPECT_TRUE(fs::exists(run->path / "tensorboard"));
  }
  EXPECT_EQ(ids.size(), x.trials.size());
}
