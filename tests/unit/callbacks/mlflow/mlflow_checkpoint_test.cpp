// Checkpoints that are uploaded with the report that saved them.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "tests/support/tracker_records.hpp"
#include "tests/unit/callbacks/mlflow/mlflow_tree_fixture.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal::test {
namespace {

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

// Below a folder that this user may not enter, too, no retry may ever help.
TEST_F(mlflow_checkpoint_test, suspects_a_record_whose_file_is_not_looked_up) {
  for (auto& path : {best / "manifest.json", folder / "image.png"}) {
    fs::remove(path);
    fs::create_symlink(path.filename(), path); // A loop.
  }
  auto records = tracker_records{};
  records.add(logged_artifact{folder / "image.png", "a"})
    .add(logged_image{3, "sample", folder / "image.png", 1, 1, 1})
    .report(2, {{{"loss", 1}}}, "best");
  for (auto& one : records.all()) {
    auto failed = x.log({&one, 1});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
    EXPECT_TRUE(failed.error().suspect) << "it is refused if that lasts";
  }
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

} // namespace
} // namespace troupe::internal::test
