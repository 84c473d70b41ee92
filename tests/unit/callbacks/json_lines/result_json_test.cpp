#include "troupe/callbacks/json_lines/result_json_sink.hpp"

#include <unistd.h>

#include <limits>
#include <random>
#include <stop_token>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/broken_off.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tracker_records.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"

namespace troupe::internal {
namespace {

using nlohmann::json;
using test::tracker_records;
using records_span = std::span<const tracker_record>;

class result_json_test : public testing::Test {
protected:
  void start(result_json_sink& sink, const std::string& state = {}) {
    auto done = sink.start(run_, state);
    ASSERT_TRUE(done) << done.error().reason.message;
  }

  std::vector<json> written(records_span records,
                            result_json_options options = {}) {
    result_json_sink sink{options};
    start(sink);
    auto done = sink.log(records);
    EXPECT_TRUE(done) << done.error().reason.message;
    return lines_of(file_);
  }

  static std::vector<json> lines_of(const fs::path& path) {
    std::vector<json> result;
    std::istringstream text{test::bytes_of(path)};
    for (std::string line; std::getline(text, line);)
      result.push_back(json::parse(line));
    return result;
  }

  test::temporary_folder folder_;
  tracked_run run_ = test::tracked_run_in(folder_.path());
  fs::path file_ = folder_ / "result.json";
};

TEST_F(result_json_test, writes_an_object_with_rays_names_for_each_report) {
  tracker_records records;
  records.attempt(0, 0);
  records.report(0, {{{"loss", 0.5}, {"val/acc", 1}}, {{"loss", 9}}}, "ckpt_0");
  auto lines = written(records.all());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], json::parse(R"({
    "loss": 0.5, "val": {"acc": 1},
    "training_iteration": 1, "timestamp": 1767225601,
    "date": "2026-01-01_00-00-01", "time_this_iter_s": 1.0,
    "time_total_s": 1.0, "time_since_restore": 1.0,
    "iterations_since_restore": 1,
    "trial_id": "0123456789abcdef0123456789abcdef", "hostname": "node-1",
    "done": false, "should_checkpoint": true, "checkpoint_dir_name": "ckpt_0",
    "config": {"lr": 0.1, "epochs": 3, "optimizer": {"name": "adam"},
               "amp": true},
    "step": 0, "time_ms": 1767225601000, "attempt": 0, "seq": 200,
    "world_size": 2, "pid": )" + std::to_string(::getpid())
                                  + "}"));
}

TEST_F(result_json_test, changes_nothing_once_its_run_is_over) {
  std::stop_source over;
  run_.cancelled = over.get_token();
  tracker_records records;
  records.report(0, {{{"loss", 0.5}}});
  records.report(1, {{{"loss", 0.25}}});
  records.add(logged_params{{{"late", 1}}});
  const records_span all{records.all()};
  result_json_sink sink;
  start(sink);
  ASSERT_TRUE(sink.log(all.first(1)));
  auto lines = test::bytes_of(file_);
  auto params = test::bytes_of(folder_ / "params.json");
  over.request_stop();
  EXPECT_FALSE(sink.log(all.subspan(2)));
  EXPECT_FALSE(sink.log(all.subspan(1, 1)));
  EXPECT_EQ(test::bytes_of(file_), lines);
  EXPECT_EQ(test::bytes_of(folder_ / "params.json"), params);
}

TEST_F(result_json_test, counts_time_over_the_run_and_since_the_restart) {
  tracker_records records;
  records.attempt(0, 0); // second 0
  records.report(0, {{}});
  records.report(1, {{}});
  records.attempt(1, 1);   // second 3
  records.report(1, {{}}); // second 4
  records.report(2, {{}});
  auto lines = written(records.all());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3]["training_iteration"], 3);
  EXPECT_EQ(lines[3]["attempt"], 1);
  EXPECT_EQ(lines[3]["time_this_iter_s"], 1.0);
  EXPECT_EQ(lines[3]["time_total_s"], 4.0);
  EXPECT_EQ(lines[3]["time_since_restore"], 2.0);
  EXPECT_EQ(lines[3]["iterations_since_restore"], 2);
}

TEST_F(result_json_test, writes_every_kind_of_value) {
  using limits = std::numeric_limits<double>;
  tracker_records records;
  records.report(0, {{{"a", limits::quiet_NaN()},
                      {"b", limits::infinity()},
                      {"c", -limits::infinity()},
                      {"d", (std::int64_t{1} << 53) + 1},
                      {"e", 0.1},
                      {"f", true},
                      {"g", "a \"b\" \xff"}}});
  auto line = written(records.all()).at(0);
  EXPECT_EQ(line["a"], "NaN");
  EXPECT_EQ(line["b"], "Infinity");
  EXPECT_EQ(line["c"], "-Infinity");
  EXPECT_EQ(line["d"].get<std::int64_t>(), 9007199254740993);
  EXPECT_EQ(line["e"].get<double>(), 0.1);
  EXPECT_EQ(line["f"], true);
  EXPECT_EQ(line["g"], "a \"b\" \xef\xbf\xbd");
  fs::remove(file_);
  line = written(records.all(), {.spelling = json_non_finite::null}).at(0);
  EXPECT_TRUE(line.at("a").is_null());
  fs::remove(file_);
  line = written(records.all(), {.non_finite = non_finite::skip}).at(0);
  EXPECT_FALSE(line.contains("a"));
  EXPECT_TRUE(line.contains("e"));
}

TEST_F(result_json_test, lets_a_metric_replace_a_member_of_the_same_name) {
  tracker_records records;
  records.report(0, {{{"step", 1000}, {"config/seed", 7}}});
  auto line = written(records.all()).at(0);
  EXPECT_EQ(line["step"], 1000);
  EXPECT_EQ(line["config"], json::parse(R"({"seed": 7})"));
}

TEST_F(result_json_test, writes_config_and_logged_params_to_params_json) {
  tracker_records records;
  records.add(logged_params{{{"seed", 7}, {"optimizer/beta", 0.9}}});
  written(records.all());
  auto expected = json::parse(R"({"lr": 0.1, "epochs": 3, "amp": true,
    "optimizer": {"name": "adam", "beta": 0.9}, "seed": 7})");
  EXPECT_EQ(json::parse(test::bytes_of(folder_ / "params.json")), expected);
  result_json_sink again;
  start(again, R"({"size":0,"last_us":0,"restore_us":0,"total_us":0,)"
               R"("iterations":0})");
  EXPECT_EQ(json::parse(test::bytes_of(folder_ / "params.json")), expected);
}

TEST_F(result_json_test, keeps_every_report_of_a_difficult_run) {
  auto lines = written(test::hard_run().all());
  ASSERT_EQ(lines.size(), 60u + 40 + 10);
  EXPECT_EQ(lines[99 - 20 + 20]["epoch"], 79);
  EXPECT_EQ(lines[90]["many"].size(), 1100u);
  EXPECT_EQ(lines[90]["big"].get<std::int64_t>(), 9007199254740993);
}

TEST_F(result_json_test, cuts_off_what_was_written_after_the_state) {
  tracker_records records;
  records.attempt(0, 0);
  for (std::uint64_t i = 0; i < 6; ++i)
    records.report(i, {{{"loss", i}}});
  const records_span all{records.all()};
  result_json_sink first;
  start(first);
  ASSERT_TRUE(first.log(all.first(3)));
  auto state = first.state();
  ASSERT_TRUE(first.log(all.subspan(3)));
  auto whole = test::bytes_of(file_);
  test::write_bytes(file_, whole + "{\"torn");
  result_json_sink second;
  start(second, state);
  EXPECT_EQ(lines_of(file_).size(), 2u);
  ASSERT_TRUE(second.log(all.subspan(3)));
  EXPECT_EQ(test::bytes_of(file_), whole);
}

TEST_F(result_json_test, continues_after_the_whole_lines_of_a_shortened_file) {
  test::write_bytes(file_, "{\"a\":1}\n{\"b\"");
  result_json_sink sink;
  start(sink, R"({"size":1000,"last_us":0,"restore_us":0,"total_us":0,)"
              R"("iterations":0})");
  EXPECT_EQ(test::bytes_of(file_), "{\"a\":1}\n");
}

TEST_F(result_json_test, keeps_an_unknown_file) {
  test::write_bytes(file_, "someone's\n");
  result_json_sink sink;
  start(sink);
  EXPECT_EQ(test::bytes_of(file_), "");
  EXPECT_EQ(test::bytes_of(folder_ / "result.json.1"), "someone's\n");
}

TEST_F(result_json_test, loses_and_repeats_no_line_wherever_it_is_killed) {
  // The pid differs from process to process; a metric takes its place.
  tracker_records records;
  records.attempt(0, 0);
  for (std::uint64_t i = 0; i < 60; ++i)
    records.report(i, {{{"pid", 1}, {"loss", i}}});
  auto make = [] { return sink_from_json<result_json_sink>("{}"); };
  {
    test::broken_off writer{make, run_, records.all()};
    ASSERT_TRUE(writer.run_until("none", 1));
  }
  auto whole = test::bytes_of(file_);
  EXPECT_EQ(lines_of(file_).size(), 60u);
  fs::remove(file_);
  auto size = [this] {
    boost::system::error_code missing;
    auto result = fs::file_size(file_, missing);
    return missing ? 0 : result;
  };
  std::mt19937 random{50};
  for (const auto* point : {"record_file.append", "record_file.commit",
                            "replace.written", "replace.renamed"}) {
    test::broken_off writer{make, run_, records.all()};
    for (unsigned n : {1, 2, 4})
      EXPECT_FALSE(writer.run_until(point, n));
    for (int kill = 0; kill < 10; ++kill)
      writer.run_until_size(size, random() % whole.size());
    EXPECT_TRUE(writer.run_until("none", 1));
    EXPECT_EQ(test::bytes_of(file_), whole) << point;
    fs::remove(file_);
  }
}

TEST_F(result_json_test, reports_once_that_the_disk_is_full_or_read_only) {
  test::small_disk disk{folder_ / "disk", "64k"};
  if (!disk)
    GTEST_SKIP() << "no tmpfs can be mounted: " << disk.reason();
  run_.path = disk.path();
  tracker_records records;
  records.report(0, {{{"text", std::string(100'000, 'x')}}});
  result_json_sink sink;
  start(sink);
  auto path = (disk.path() / "result.json").string();
  auto full = sink.log(records.all());
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().what, sink_failure::kind::transient);
  EXPECT_EQ(full.error().reason.code, ec::storage);
  EXPECT_EQ(test::bytes_of(path), "");
  auto state = sink.state();
  ASSERT_TRUE(sink.finish(run_status_kind::errored, records.time()));
  if (!disk.make_read_only())
    GTEST_SKIP() << "the disk cannot be made read-only";
  auto read_only = sink.start(run_, state);
  ASSERT_FALSE(read_only);
  EXPECT_EQ(read_only.error().reason.message,
            "cannot open " + path + ": Read-only file system");
}

TEST_F(result_json_test, can_be_rebuilt_from_its_options) {
  const result_json_sink sink{{.ranks = rank_values::mean,
                               .non_finite = non_finite::skip,
                               .spelling = json_non_finite::null}};
  EXPECT_EQ(sink_from_json<result_json_sink>(sink.options())->options(),
            sink.options());
  EXPECT_EQ(sink_from_json<result_json_sink>("{}")->options(),
            result_json_sink{}.options());
  EXPECT_THROW(sink_from_json<result_json_sink>(R"({"spelling":"x"})"),
               std::invalid_argument);
}

} // namespace
} // namespace troupe::internal
