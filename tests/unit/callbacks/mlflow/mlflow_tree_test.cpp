#include "troupe/callbacks/mlflow/mlflow_tree.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/folder_elsewhere.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tracker_records.hpp"
#include "troupe/callbacks/mlflow/mlflow_files.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal::test {
namespace {

class mlflow_tree_test : public testing::Test {
protected:
  mlflow_run wanted() {
    return {.experiment = "e",
            .name = "r",
            .uid = std::string(32, 'a'),
            .start_ms = 1000,
            .tags = {{"t", "v"}}};
  }

  fs::path run_folder() {
    for (const auto& x : fs::directory_iterator{folder.path()})
      if (fs::exists(x.path() / wanted().uid))
        return x.path() / wanted().uid;
    return {};
  }

  std::string lines(const std::string& key) {
    return bytes_of(run_folder() / "metrics" / key);
  }

  static sink_result log(mlflow_tree& x, std::vector<mlflow_metric> metrics) {
    return x.log_metrics(metrics);
  }

  temporary_folder folder;
};

TEST_F(mlflow_tree_test, writes_the_files_that_mlflow_writes) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"loss", 0.5, 1700, 3}, {"a/b", -1, 1701, 4}}));
  const std::vector<mlflow_pair> params{{"lr", "0.1"}};
  ASSERT_TRUE(tree.log_params(params));
  EXPECT_EQ(lines("loss"), "1700 0.5 3\n");
  EXPECT_EQ(lines("a/b"), "1701 -1 4\n");
  EXPECT_EQ(bytes_of(run_folder() / "params/lr"), "0.1");
  EXPECT_EQ(bytes_of(run_folder() / "tags/t"), "v");
  EXPECT_TRUE(fs::is_directory(run_folder() / "artifacts"));
  EXPECT_TRUE(fs::is_directory(folder / ".trash"));
  EXPECT_EQ(read_meta(folder / "0/meta.yaml")["name"], "Default");
}

TEST_F(mlflow_tree_test, does_not_wait_for_a_pipe_instead_of_a_meta_file) {
  ASSERT_EQ(::mkfifo((folder / "meta.yaml").c_str(), 0600), 0);
  EXPECT_TRUE(read_meta(folder / "meta.yaml").empty());
}

TEST_F(mlflow_tree_test, writes_status_and_end) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto meta = read_meta(run_folder() / "meta.yaml");
  EXPECT_EQ(meta["status"], "1");
  EXPECT_EQ(meta["end_time"], "null");
  EXPECT_EQ(meta["start_time"], "1000");
  for (auto [status, number] : {std::pair{run_status_kind::finished, "3"},
                                std::pair{run_status_kind::errored, "4"},
                                std::pair{run_status_kind::aborted, "5"}}) {
    ASSERT_TRUE(tree.end(status, 2000));
    meta = read_meta(run_folder() / "meta.yaml");
    EXPECT_EQ(meta["status"], number);
    EXPECT_EQ(meta["end_time"], "2000");
  }
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(wanted(), tree.state()));
  EXPECT_EQ(read_meta(run_folder() / "meta.yaml")["status"], "1");
}

TEST_F(mlflow_tree_test, writes_nothing_once_the_run_is_over) {
  std::stop_source over;
  mlflow_tree tree{folder.path(), over.get_token()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"loss", 0.5, 1700, 3}}));
  auto state = tree.state();
  over.request_stop();
  auto refused = [](const sink_result& x) {
    return !x && x.error().reason.code == ec::stopped;
  };
  EXPECT_TRUE(refused(log(tree, {{"loss", 0.25, 1800, 4}})));
  EXPECT_TRUE(refused(tree.log_params(std::vector<mlflow_pair>{{"a", "b"}})));
  EXPECT_TRUE(refused(tree.end(run_status_kind::finished, 2000)));
  EXPECT_TRUE(refused(
    mlflow_tree{folder.path(), over.get_token()}.open(wanted(), state)));
  EXPECT_EQ(lines("loss"), "1700 0.5 3\n");
  EXPECT_FALSE(fs::exists(run_folder() / "params/a"));
  EXPECT_EQ(read_meta(run_folder() / "meta.yaml")["end_time"], "null");
}

/// Whatever was written after the state was saved, and wherever the file ends:
/// what is delivered again is in the file once.
TEST_F(mlflow_tree_test, is_exact_after_a_crash_at_any_byte) {
  const std::vector<mlflow_metric> first{{"x", 1, 1, 1}, {"x", 2, 2, 2}};
  const std::vector<mlflow_metric> second{{"x", 3, 3, 3}, {"y", 4, 4, 4}};
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto fresh = tree.state();
  ASSERT_TRUE(tree.log_metrics(first));
  auto state = tree.state();
  auto confirmed = lines("x").size();
  ASSERT_TRUE(tree.log_metrics(second));
  auto x = lines("x");
  auto y = lines("y");
  for (auto size = confirmed; size <= x.size(); ++size) {
    write_bytes(run_folder() / "metrics/x", x.substr(0, size));
    write_bytes(run_folder() / "metrics/y", y.substr(0, size - confirmed));
    mlflow_tree again{folder.path()};
    ASSERT_TRUE(again.open(wanted(), state));
    EXPECT_EQ(lines("x"), x.substr(0, confirmed));
    EXPECT_FALSE(fs::exists(run_folder() / "metrics/y"))
      << "an empty file makes the whole experiment unreadable";
    ASSERT_TRUE(again.log_metrics(second));
    EXPECT_EQ(lines("x"), x);
    EXPECT_EQ(lines("y"), y);
  }
  mlflow_tree from_begin{folder.path()};
  ASSERT_TRUE(from_begin.open(wanted(), fresh));
  EXPECT_FALSE(fs::exists(run_folder() / "metrics/x"));
}

TEST_F(mlflow_tree_test, cuts_a_torn_line_within_what_was_confirmed) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"x", 1, 1, 1}, {"x", 0.25, 2, 2}}));
  // The power failed before the disk had written everything.
  write_bytes(run_folder() / "metrics/x", "1 1 1\n2 0.2");
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(wanted(), tree.state()));
  ASSERT_TRUE(log(again, {{"x", 3, 3, 3}}));
  EXPECT_EQ(lines("x"), "1 1 1\n3 3 3\n");
}

TEST_F(mlflow_tree_test, has_nothing_of_a_batch_that_failed_twice) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  const std::vector<mlflow_metric> batch{{"a", 1, 1, 1}, {"b", 1, 1, 1}};
  fs::create_directory_symlink("/proc/none", run_folder() / "metrics/b");
  ASSERT_FALSE(tree.log_metrics(batch));
  ASSERT_FALSE(tree.log_metrics(batch));
  fs::remove(run_folder() / "metrics/b");
  ASSERT_TRUE(tree.log_metrics(batch));
  EXPECT_EQ(lines("a"), "1 1 1\n");
  EXPECT_EQ(lines("b"), "1 1 1\n");
}

/// A run named by `run_id`, with content of its own.
class given_mlflow_run_test : public mlflow_tree_test {
protected:
  void SetUp() override {
    mlflow_tree other{folder.path()}; // Creates the experiment.
    ASSERT_TRUE(other.open(wanted(), ""));
    place = run_folder().parent_path() / id;
    for (const auto* name : {"metrics", "tags"})
      fs::create_directories(place / name);
    write_bytes(place / "meta.yaml",
                "end_time: 9\nlifecycle_stage: active\nrun_name: theirs\n"
                "start_time: 7\nstatus: 3\nuser_id: someone\n");
    write_bytes(place / "metrics/old", "1 1 1\n");
    write_bytes(place / "metrics/x", "1 0.5 1\n");
    write_bytes(place / "tags/mlflow.runName", "theirs");
  }

  mlflow_run given(char uid) {
    auto result = wanted();
    result.uid = std::string(32, uid);
    result.run_id = id;
    result.tags.push_back({"mlflow.runName", "ours"});
    return result;
  }

  std::string metric(const std::string& key) {
    return bytes_of(place / "metrics" / key);
  }

  const std::string id = std::string(32, '9');
  fs::path place;
};

TEST_F(given_mlflow_run_test, keeps_what_is_there) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  EXPECT_EQ(metric("old"), "1 1 1\n");
  EXPECT_EQ(metric("x"), "1 0.5 1\n");
  ASSERT_TRUE(log(tree, {{"x", 2, 2, 2}}));
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(given('b'), tree.state()));
  EXPECT_EQ(metric("old"), "1 1 1\n");
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n");
  EXPECT_EQ(bytes_of(place / "tags/t"), "v");
  EXPECT_EQ(bytes_of(place / "tags/mlflow.runName"), "theirs");
}

TEST_F(given_mlflow_run_test, is_found_in_whichever_experiment_it_is) {
  auto run = given('b');
  run.experiment = "another";
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(run, ""));
  ASSERT_TRUE(log(tree, {{"x", 2, 2, 2}}));
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n");
}

TEST_F(given_mlflow_run_test, changes_only_its_status_and_its_end) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  auto meta = read_meta(place / "meta.yaml");
  EXPECT_EQ(meta["status"], "1");
  EXPECT_EQ(meta["end_time"], "null");
  ASSERT_TRUE(tree.end(run_status_kind::errored, 2000));
  meta = read_meta(place / "meta.yaml");
  EXPECT_EQ(meta["status"], "4");
  EXPECT_EQ(meta["end_time"], "2000");
  EXPECT_EQ(meta["run_name"], "theirs");
  EXPECT_EQ(meta["start_time"], "7");
  EXPECT_EQ(meta["user_id"], "someone");
  EXPECT_EQ(meta["lifecycle_stage"], "active");
}

TEST_F(given_mlflow_run_test, accepts_values_of_two_runs_at_once) {
  mlflow_tree one{folder.path()}, two{folder.path()};
  ASSERT_TRUE(one.open(given('b'), ""));
  ASSERT_TRUE(log(one, {{"x", 2, 2, 2}}));
  auto state = one.state();
  ASSERT_TRUE(log(one, {{"x", 3, 3, 3}}));
  ASSERT_TRUE(two.open(given('c'), ""));
  ASSERT_TRUE(log(two, {{"x", 4, 4, 4}}));
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(given('b'), state));
  ASSERT_TRUE(log(again, {{"x", 3, 3, 3}, {"x", 5, 5, 5}}));
  ASSERT_TRUE(log(two, {{"x", 6, 6, 6}}));
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n3 3 3\n4 4 4\n5 5 5\n6 6 6\n");
}

TEST_F(given_mlflow_run_test, has_each_value_once_after_a_crash_at_any_byte) {
  const std::vector<mlflow_metric> first{{"x", 10, 10, 10}, {"x", 20, 20, 20}};
  const std::vector<mlflow_metric> second{{"x", 30, 30, 30}, {"x", 41, 41, 4}};
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  auto fresh = tree.state();
  ASSERT_TRUE(tree.log_metrics(first));
  auto state = tree.state();
  auto confirmed = metric("x").size();
  ASSERT_TRUE(tree.log_metrics(second));
  auto x = metric("x");
  for (auto size = confirmed; size <= x.size(); ++size) {
    write_bytes(place / "metrics/x", x.substr(0, size));
    mlflow_tree again{folder.path()};
    ASSERT_TRUE(again.open(given('b'), state));
    ASSERT_TRUE(again.log_metrics(second));
    EXPECT_EQ(metric("x"), x);
  }
  mlflow_tree from_begin{folder.path()};
  ASSERT_TRUE(from_begin.open(given('b'), fresh));
  ASSERT_TRUE(from_begin.log_metrics(first));
  ASSERT_TRUE(from_begin.log_metrics(second));
  EXPECT_EQ(metric("x"), x);
}

TEST_F(given_mlflow_run_test, begins_a_line_behind_one_that_has_no_end) {
  write_bytes(place / "metrics/x", "1 0.5 1");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(given('b'), ""));
  ASSERT_TRUE(log(tree, {{"x", 2, 2, 2}}));
  EXPECT_EQ(metric("x"), "1 0.5 1\n2 2 2\n");
}

TEST_F(mlflow_tree_test, gives_a_file_and_a_folder_of_one_name_two) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  ASSERT_TRUE(log(tree, {{"a", 1, 1, 1}, {"b/c", 1, 1, 1}}));
  ASSERT_TRUE(log(tree, {{"a/x", 2, 2, 2}, {"b", 2, 2, 2}}));
  std::vector<std::string> names;
  for (const auto& x : fs::directory_iterator{run_folder() / "metrics"})
    names.push_back(x.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                       "a", testing::MatchesRegex("a_x_[0-9a-f]{8}"), "b",
                       testing::MatchesRegex("b_[0-9a-f]{8}")));
  EXPECT_EQ(lines("b/c"), "1 1 1\n");
}

TEST_F(mlflow_tree_test, knows_the_params_of_an_earlier_process) {
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  const std::vector<mlflow_pair> params{{"o/lr", "1"}, {"n", ""}};
  ASSERT_TRUE(tree.log_params(params));
  mlflow_tree again{folder.path()};
  ASSERT_TRUE(again.open(wanted(), tree.state()));
  EXPECT_THAT(again.params(), testing::ElementsAre(testing::Pair("n", ""),
                                                   testing::Pair("o/lr", "1")));
}

TEST_F(mlflow_tree_test, uses_experiments_that_mlflow_created) {
  fs::create_directories(folder / "77");
  write_bytes(folder / "77/meta.yaml",
              "artifact_location: file:///x\nexperiment_id: '77'\n"
              "lifecycle_stage: active\nname: 'it''s'\n");
  auto run = wanted();
  run.experiment = "it's";
  mlflow_tree by_name{folder.path()};
  ASSERT_TRUE(by_name.open(run, ""));
  EXPECT_TRUE(fs::exists(folder / "77" / run.uid));
  run.experiment_id = "78";
  mlflow_tree by_id{folder.path()};
  auto failed = by_id.open(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::permanent);
  run.experiment_id = "77";
  EXPECT_TRUE(by_id.open(run, ""));
  write_bytes(folder / "77/meta.yaml",
              "experiment_id: '77'\nlifecycle_stage: deleted\nname: x\n");
  failed = by_id.open(run, "");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().reason.message, testing::HasSubstr("deleted"));
}

/// The position in the journal is saved durably, so what precedes it must be,
/// too.
TEST_F(mlflow_tree_test, confirms_only_what_survives_a_power_cut) {
  const std::vector<mlflow_metric> batch{{"a", 1, 1, 1}, {"b/c", 1, 1, 1}};
  const std::vector<mlflow_pair> pairs{{"p", "1"}};
  write_bytes(folder / "artifact", "bytes");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto is_waiting = [&](const auto& write) {
    EXPECT_TRUE(arm_failpoint("storage.sync_file:1+=eio"));
    auto result = write();
    EXPECT_TRUE(arm_failpoint(""));
    return !result && result.error().what == sink_failure::kind::transient
           && result.error().accepted == 0 && write();
  };
  EXPECT_TRUE(is_waiting([&] { return tree.log_metrics(batch); }));
  EXPECT_TRUE(is_waiting([&] { return tree.log_params(pairs); }));
  EXPECT_TRUE(is_waiting([&] { return tree.set_tags(pairs); }));
  EXPECT_TRUE(is_waiting(
    [&] { return tree.put_file(folder / "artifact", "sub/artifact"); }));
  EXPECT_EQ(lines("a"), "1 1 1\n");
  EXPECT_EQ(lines("b/c"), "1 1 1\n");
  // Renamed files are durable only once their folder is synced.
  for (const auto* pass : {"1", "2", "3"}) {
    EXPECT_TRUE(
      arm_failpoint("storage.sync_file:" + std::string{pass} + "=eio"));
    EXPECT_EQ(bool{tree.set_tags(pairs)}, *pass == '3') << pass;
  }
  EXPECT_TRUE(arm_failpoint(""));
}

TEST_F(mlflow_tree_test, does_not_upload_the_checkpoint_of_another_report) {
  auto run = tracked_run_in(folder / "run");
  auto best = run.path / "checkpoints" / "best";
  fs::create_directories(best);
  write_bytes(best / "model", "of report 2");
  write_bytes(
    best / "manifest.json",
    to_json(manifest{
      .run_name = run.name, .name = "best", .attempt = 3, .index = 2}));
  auto uploaded = [&](std::uint64_t attempt, std::uint64_t index) {
    auto tree = folder / (std::to_string(attempt) + std::to_string(index));
    mlflow_sink x{{.tracking_uri = tree.string(), .upload_checkpoints = true}};
    EXPECT_TRUE(x.start(run, ""));
    auto records = tracker_records{};
    records.attempt(attempt, 0).report(index, {{{"loss", 1}}}, "best");
    EXPECT_TRUE(x.log(records.all()));
    auto files = files_below(tree).value();
    return std::ranges::count(
      files, "model", [](auto& file) { return file.filename().string(); });
  };
  EXPECT_EQ(uploaded(3, 2), 1);
  EXPECT_EQ(uploaded(3, 0), 0);
  EXPECT_EQ(uploaded(1, 2), 0);
}

class mlflow_checkpoint_test : public mlflow_tree_test {
protected:
  mlflow_checkpoint_test() {
    fs::create_directories(best);
    write_bytes(best / "model", "bytes");
    write_bytes(best / "nested", "bytes");
    write_bytes(
      best / "manifest.json",
      to_json(manifest{.run_name = run.name, .name = "best", .index = 2}));
    EXPECT_TRUE(x.start(run, ""));
  }

  /// What is below *name* in the run's folder of the file store.
  fs::path stored(const std::string& name) {
    for (auto& entry : fs::directory_iterator{folder / "tree"})
      if (fs::exists(entry.path() / run.id))
        return entry.path() / run.id / name;
    return {};
  }

  tracked_run run = tracked_run_in(folder / "run");
  fs::path best = run.path / "checkpoints" / "best";
  mlflow_sink x{
    {.tracking_uri = (folder / "tree").string(), .upload_checkpoints = true}};
};

TEST_F(mlflow_checkpoint_test, leaves_no_half_of_one_that_retention_removed) {
  auto records = tracker_records{};
  records.report(2, {{{"loss", 1}}}, "best");
  // The copy fails behind its first file.
  fs::create_directories(stored("artifacts") / "checkpoints/best/nested");
  auto failed = x.log(records.all());
  ASSERT_FALSE(failed);
  EXPECT_TRUE(fs::exists(stored("artifacts/checkpoints/best/model")));
  EXPECT_FALSE(fs::exists(stored("artifacts/checkpoints/best/manifest.json")));
  fs::rename(best, folder / "evicted");
  EXPECT_TRUE(x.log(records.all()));
  EXPECT_FALSE(fs::exists(stored("artifacts/checkpoints/best")));
}

TEST_F(mlflow_checkpoint_test, keeps_a_whole_one_that_retention_removed_later) {
  auto records = tracker_records{};
  records.report(2, {{{"loss", 1}}}, "best");
  ASSERT_TRUE(x.log(records.all()));
  fs::rename(best, folder / "evicted");
  EXPECT_TRUE(x.log(records.all())); // As after a crash.
  EXPECT_TRUE(fs::exists(stored("artifacts/checkpoints/best/model")));
}

TEST_F(mlflow_checkpoint_test, writes_a_row_once_however_often_its_files_fail) {
  auto records = tracker_records{};
  records.report(1, {{{"loss", 1}}}).report(2, {{{"loss", 1}}}, "best");
  std::span<const tracker_record> rest = records.all();
  auto fails = 0;
  for (auto done = false; !done;) {
    ASSERT_TRUE(
      arm_failpoint("storage.sync_file:" + std::to_string(++fails) + "=eio"));
    auto ok = x.log(rest);
    ASSERT_TRUE(arm_failpoint(""));
    done = ok.has_value();
    rest = rest.subspan(ok ? rest.size() : ok.error().accepted);
  }
  EXPECT_GT(fails, 6); // The row's metrics, then each of its files.
  EXPECT_EQ(std::ranges::count(bytes_of(stored("metrics/loss")), '\n'), 2);
}

TEST_F(mlflow_checkpoint_test, keeps_the_values_of_a_row_whose_files_are_bad) {
  auto records = tracker_records{};
  records.report(2, {{{"loss", 1}}}, "best").report(3, {{{"loss", 1}}});
  std::span<const tracker_record> all = records.all();
  fs::create_directories(stored("artifacts") / "checkpoints/best/nested");
  for (auto count : {2u, 1u}) { // Halved, as the feed does it.
    auto failed = x.log(all.first(count));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, sink_failure::kind::rejected);
    EXPECT_EQ(failed.error().accepted, 0u);
  }
  ASSERT_TRUE(x.log(all.subspan(1)));
  EXPECT_EQ(std::ranges::count(bytes_of(stored("metrics/loss")), '\n'), 2);
}

TEST_F(mlflow_tree_test, copies_files_of_another_file_system) {
  folder_elsewhere elsewhere;
  write_bytes(elsewhere / "a", "bytes");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  auto ok = tree.put_file(elsewhere / "a", "sub/a");
  ASSERT_TRUE(ok) << ok.error().reason.message;
  EXPECT_EQ(bytes_of(run_folder() / "artifacts/sub/a"), "bytes");
}

TEST_F(mlflow_tree_test, rejects_only_files_that_can_never_be_copied) {
  write_bytes(folder / "a", "bytes");
  mlflow_tree tree{folder.path()};
  ASSERT_TRUE(tree.open(wanted(), ""));
  const std::string long_name(300, 'x');
  for (auto& name : {long_name, long_name + "/a", "b/" + long_name + "/a"}) {
    auto result = tree.put_file(folder / "a", name);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().what, sink_failure::kind::rejected) << name;
  }
  auto gone = tree.put_file(folder / "gone", "c");
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().what, sink_failure::kind::rejected);
  EXPECT_TRUE(tree.put_file(folder / "a", "a"));
}

TEST_F(mlflow_tree_test, waits_where_nothing_can_be_written) {
  mlflow_tree tree{"/proc/none"};
  auto failed = tree.open(wanted(), "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
}

} // namespace
} // namespace troupe::internal::test
