#include <limits>

#include "tests/peers/mlflow/mlflow_fixture.hpp"

namespace troupe::internal::test {
namespace {

class mlflow_tree_test : public mlflow_fixture {
protected:
  void SetUp() override { TROUPE_NEEDS_PEERS(); }

  std::string uri() const {
    return "file://" + (folder / "storage/mlruns").string();
  }

  std::string database() const {
    return "sqlite:///" + (folder / "m.db").string();
  }
};

constexpr auto history = R"(
i = run.info
print(client.get_experiment(i.experiment_id).name)
print(i.run_name, i.status, i.start_time, i.end_time)
print(sorted(run.data.params.items()))
print(run.data.tags['mlflow.user'], run.data.tags['troupe.storage_path'],
      run.data.tags['note'])
print(points('loss'), points('val/a b'), points('inf'), points('nan'))
)";

TEST_F(mlflow_tree_test, is_read_and_converted_by_mlflow) {
  constexpr auto inf = std::numeric_limits<double>::infinity();
  constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
  run.experiment = "it's \"quoted\": \xC3\xA4";
  run.display_name = "a: run #1";
  mlflow_sink x{{}};
  ASSERT_EQ(said(x.start(run, "")), "");
  std::vector<tracker_record> records{
    row(0, {{"loss", 0.1}, {"val/a b", 1}, {"note", "line\nline"}}),
    row(1, {{"loss", nan}, {"inf", -inf}, {"nan", nan}}),
    record(2, logged_text{1, "t", "hello"})};
  ASSERT_EQ(said(x.log(records)), "");
  ASSERT_EQ(
    said(x.finish(run_status_kind::aborted, begin + std::chrono::seconds{5})),
    "");
  auto notes = x.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  auto& hint = notes.front();
  EXPECT_NE(hint.find("MLFLOW_ALLOW_FILE_STORE=true"), std::string::npos);
  EXPECT_NE(hint.find("mlflow migrate-filestore --source '"
                      + (folder / "storage/mlruns").string() + "'"),
            std::string::npos);

  auto expected = [&](const std::string& infinity) {
    return run.experiment
           + "\na: run #1 KILLED 1700000000000 1700000005000\n"
             "[('layers', '3'), ('lr', '0.1'), ('optimizer/name', 'adam')]\n"
             "me "
           + run.path.string()
           + " line\nline\n"
             "[(0, 0.1, 1700000000000), (1, nan, 1700000001000)] "
             "[(0, 1.0, 1700000000000)] [(1, "
           + infinity + ", 1700000001000)] [(1, nan, 1700000001000)]\n";
  };
  EXPECT_EQ(asked(uri(), run.id, history), expected("-inf"));
  EXPECT_EQ(asked(uri(), run.id,
                  "print(mlflow.artifacts.load_text(run.info.artifact_uri"
                  " + '/texts/t/1.txt'))"),
            "hello\n");

  auto migrated =
    run_peer({"mlflow", "migrate-filestore", "--source",
              (folder / "storage/mlruns").string(), "--target", database()},
             {{"MLFLOW_ALLOW_FILE_STORE", "true"}});
  ASSERT_EQ(migrated.exit_code, 0) << migrated.output;
  EXPECT_EQ(asked(database(), run.id, history),
            expected("-1.7976931348623157e+308"));
}

TEST_F(mlflow_tree_test, has_each_point_once_after_a_crash_at_any_place) {
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 6; ++i)
    records.push_back(row(i, {{"loss", i}, {"a", i}, {"a/b", i}}));
  std::string confirmed;
  {
    mlflow_sink x{{}};
    ASSERT_EQ(said(x.start(run, "")), "");
    ASSERT_EQ(said(x.log({records.data(), 2})), "");
    confirmed = x.state();
    // This was written, and its state was lost with the process.
    ASSERT_EQ(said(x.log({records.data() + 2, 2})), "");
  }
  for (const auto& file :
       fs::recursive_directory_iterator{folder / "storage/mlruns"})
    if (file.path().filename() == "loss") // Torn within a value.
      write_bytes(file.path(), bytes_of(file.path()) + "1700000009000 0.");
  mlflow_sink again{{}};
  ASSERT_EQ(said(again.start(run, confirmed)), "");
  ASSERT_EQ(said(again.log({records.data() + 2, 4})), "");
  EXPECT_EQ(asked(uri(), run.id, R"(
print([p[:2] for p in points('loss')])
for k in sorted(run.data.metrics): print(k, len(points(k)))
)"),
            "[(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0)]\n"
            "a 6\na_b_3a8e75c1 6\nloss 6\n");
}

TEST_F(mlflow_tree_test, puts_runs_of_one_experiment_together) {
  mlflow_sink first{{}};
  ASSERT_EQ(said(first.start(run, "")), "");
  auto id = run.id;
  run.id[0] = 'e';
  mlflow_sink second{{}};
  ASSERT_EQ(said(second.start(run, "")), "");
  run.id[0] = 'd';
  mlflow_sink other{{.experiment = "Default"}};
  ASSERT_EQ(said(other.start(run, "")), "");
  EXPECT_EQ(asked(uri(), id, R"(
print(len(client.search_runs([run.info.experiment_id])))
print(len(client.search_runs(['0'])), len(client.search_experiments()))
)"),
            "2\n1 2\n");
}

} // namespace
} // namespace troupe::internal::test
