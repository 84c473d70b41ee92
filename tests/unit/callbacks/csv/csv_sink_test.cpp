#include "troupe/callbacks/csv/csv_sink.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <stop_token>

#include <gtest/gtest.h>

#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tracker_records.hpp"
#include "troupe/callbacks/csv/csv_table.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/runtime/failpoint.hpp"

namespace troupe::internal {
namespace {

using test::tracker_records;
using records_span = std::span<const tracker_record>;

class csv_sink_test : public testing::Test {
protected:
  void TearDown() override { ASSERT_TRUE(arm_failpoint("")); }

  void start(csv_sink& sink, const std::string& state = {}) {
    auto done = sink.start(run_, state);
    ASSERT_TRUE(done) << done.error().reason.message;
  }

  // The file that a sink with *options* writes for *records*.
  std::string written(records_span records, csv_options options = {}) {
    csv_sink sink{options};
    start(sink);
    auto done = sink.log(records);
    EXPECT_TRUE(done) << done.error().reason.message;
    return content();
  }

  std::string content() const { return test::bytes_of(file_); }

  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> result;
    csv::line_scanner scanner;
    std::string line;
    for (auto c : text) {
      if (!scanner.ends_line(c)) {
        line += c;
      } else {
        result.push_back(std::move(line));
        line.clear();
      }
    }
    EXPECT_EQ(line, "") << "a torn line";
    return result;
  }

  test::temporary_folder folder_;
  tracked_run run_ = test::tracked_run_in(folder_.path());
  fs::path file_ = folder_ / "metrics.csv";
};

TEST_F(csv_sink_test, writes_a_row_for_each_report) {
  tracker_records records;
  records.attempt(0, 0);
  records.report(0,
                 {{{"loss", 0.5}, {"epoch", 0}, {"acc", 1}}, {{"loss", 1.5}}});
  records.report(1, {{{"loss", 0.25}, {"epoch", 1}, {"acc", 2}}, {}},
                 "checkpoint_1");
  EXPECT_EQ(written(records.all()),
            "index,attempt,time,step,world_size,checkpoint,epoch,acc,loss\n"
            "0,0,1767225601,0,2,,0,1,0.5\n"
            "1,0,1767225602,1,2,\"checkpoint_1\",1,2,0.25\n");
}

TEST_F(csv_sink_test, writes_what_the_loop_logged_besides_its_reports) {
  tracker_records records;
  records.add(logged_metrics{70, {{"batch_loss", 0.5}}});
  records.add(logged_text{70, "note", "hi"});
  records.report(0, {{{"loss", 0.5}}});
  EXPECT_EQ(written(records.all()),
            "index,attempt,time,step,world_size,checkpoint,batch_loss,loss\n"
            ",0,1767225600,70,,,0.5,\n"
            "0,0,1767225602,0,1,,,0.5\n");
}

TEST_F(csv_sink_test, changes_nothing_once_its_run_is_over) {
  std::stop_source over;
  run_.cancelled = over.get_token();
  tracker_records records;
  records.report(0, {{{"loss", 0.5}}});
  records.report(1, {{{"loss", 0.25}}});
  records.report(2, {{{"acc", 1}}});
  const records_span all{records.all()};
  csv_sink sink;
  start(sink);
  ASSERT_TRUE(sink.log(all.first(1)));
  csv_sink other;
  start(other, sink.state());
  auto before = content();
  over.request_stop();
  EXPECT_FALSE(sink.log(all.subspan(1, 1)));
  EXPECT_FALSE(sink.log(all.subspan(1, 1))); // It does not open its file.
  EXPECT_FALSE(other.log(all.subspan(2)));   // A column needs a new file.
  EXPECT_EQ(content(), before);
  EXPECT_FALSE(fs::exists(folder_ / "metrics.csv.new"));
}

TEST_F(csv_sink_test, writes_every_kind_of_value) {
  using limits = std::numeric_limits<double>;
  tracker_records records;
  records.report(0, {{{"a", limits::quiet_NaN()},
                      {"b", -limits::infinity()},
                      {"c", (std::int64_t{1} << 53) + 1},
                      {"d", 0.1},
                      {"e", true},
                      {"f", "a \"b\""},
                      {"g/h", 1}}});
  const std::string head = "index,attempt,time,step,world_size,checkpoint,";
  EXPECT_EQ(written(records.all()),
            head
              + "a,b,c,d,e,f,g/h\n0,0,1767225600,0,1,,"
                "nan,-inf,9007199254740993,0.1,true,\"a \"\"b\"\"\",1\n");
  fs::remove(file_);
  EXPECT_EQ(written(records.all(), {.non_finite = non_finite::skip}),
            head
              + "c,d,e,f,g/h\n0,0,1767225600,0,1,,"
                "9007199254740993,0.1,true,\"a \"\"b\"\"\",1\n");
}

TEST_F(csv_sink_test, writes_the_values_of_the_chosen_ranks) {
  tracker_records records;
  records.report(0, {{{"loss", 1}}, {{"loss", 2}}});
  const std::string head = "index,attempt,time,step,world_size,checkpoint,";
  const std::string row = "0,0,1767225600,0,2,,";
  EXPECT_EQ(written(records.all(), {.ranks = rank_values::mean}),
            head + "loss\n" + row + "1.5\n");
  fs::remove(file_);
  EXPECT_EQ(written(records.all(), {.ranks = rank_values::each}),
            head + "loss,rank_0/loss,rank_1/loss\n" + row + "1,1,2\n");
}

TEST_F(csv_sink_test, lets_a_metric_replace_a_column_of_the_same_name) {
  tracker_records records;
  records.report(0, {{{"step", 1000}, {"time", 5}}});
  EXPECT_EQ(written(records.all()),
            "index,attempt,time,step,world_size,checkpoint\n0,0,5,1000,1,\n");
}

TEST_F(csv_sink_test, gives_new_names_a_column_and_earlier_rows_an_empty_cell) {
  tracker_records records;
  records.report(0, {{{"text", "a\nb,\"c\""}}});
  records.report(1, {{{"late", 1}, {"text", "x"}}});
  records.report(2, {{{"epoch", 2}, {"a", 3}}});
  csv_sink sink;
  start(sink);
  for (const auto& x : records.all())
    ASSERT_TRUE(sink.log({&x, 1}));
  EXPECT_EQ(content(),
            "index,attempt,time,step,world_size,checkpoint,text,late,epoch,a\n"
            "0,0,1767225600,0,1,,\"a\nb,\"\"c\"\"\",,,\n"
            "1,0,1767225601,1,1,,\"x\",1,,\n"
            "2,0,1767225602,2,1,,,,2,3\n");
  EXPECT_FALSE(fs::exists(folder_ / "metrics.csv.new"));
}

TEST_F(csv_sink_test, rewrites_the_file_once_for_all_names_of_a_batch) {
  csv_sink sink;
  start(sink);
  tracker_records records;
  records.report(0, {{{"a", 1}}});
  ASSERT_TRUE(sink.log(records.all()));
  auto before = records.all().size();
  for (std::uint64_t i = 1; i < 1000; ++i)
    records.report(i, {{{"name_" + std::to_string(i), i}}});
  // The second rewrite would end the test.
  ASSERT_TRUE(arm_failpoint("csv.replaced:2"));
  ASSERT_TRUE(sink.log(records_span{records.all()}.subspan(before)));
  EXPECT_EQ(lines_of(content()).size(), 1001u);
  EXPECT_EQ(csv::cells_of(lines_of(content())[0]).size(), 6u + 1000u);
}

TEST_F(csv_sink_test, keeps_every_cell_of_a_difficult_run) {
  auto run = test::hard_run();
  auto whole = written(run.all());
  auto rows = lines_of(whole);
  EXPECT_EQ(rows.size(), 1u + 60 + 40 + 10);
  auto names = csv::cells_of(rows[0]);
  EXPECT_EQ(names.size(), 6u + 9 + 1 + 1100);
  for (const auto& row : rows)
    EXPECT_EQ(csv::cells_of(row).size(), names.size());
  // The cells do not depend on how the records are divided.
  for (std::size_t piece : {1, 7, 50}) {
    fs::remove(file_);
    csv_sink sink;
    start(sink);
    const records_span all{run.all()};
    for (std::size_t at = 0; at < all.size(); at += piece)
      ASSERT_TRUE(sink.log(all.subspan(at, std::min(piece, all.size() - at))));
    EXPECT_EQ(lines_of(content()).size(), rows.size());
    EXPECT_EQ(csv::cells_of(lines_of(content())[0]), names);
  }
}

TEST_F(csv_sink_test, continues_the_same_file_after_a_restart) {
  tracker_records records;
  records.report(0, {{{"loss", 1}}});
  csv_sink first;
  start(first);
  ASSERT_TRUE(first.log(records.all()));
  ASSERT_TRUE(first.finish(run_status_kind::errored, records.time()));
  tracker_records more;
  more.report(1, {{{"loss", 2}}});
  csv_sink second;
  start(second, first.state());
  ASSERT_TRUE(second.log(more.all()));
  EXPECT_EQ(lines_of(content()).size(), 3u);
}

TEST_F(csv_sink_test, cuts_off_what_was_written_after_the_state) {
  tracker_records records;
  for (std::uint64_t i = 0; i < 4; ++i)
    records.report(i, {{{"text", "a\nb"}, {"key_" + std::to_string(i), i}}});
  const records_span all{records.all()};
  csv_sink first;
  start(first);
  ASSERT_TRUE(first.log(all.first(2)));
  auto state = first.state();
  ASSERT_TRUE(first.log(all.subspan(2))); // The header is longer now.
  auto whole = content();
  test::write_bytes(file_, whole + "5,0,\"torn");
  csv_sink second;
  start(second, state);
  EXPECT_EQ(lines_of(content()).size(), 3u);
  ASSERT_TRUE(second.log(all.subspan(2)));
  EXPECT_EQ(content(), whole);
}

TEST_F(csv_sink_test, keeps_an_unknown_file) {
  test::write_bytes(file_, "someone's\n");
  csv_sink sink;
  start(sink);
  EXPECT_EQ(content(), "");
  EXPECT_EQ(test::bytes_of(folder_ / "metrics.csv.1"), "someone's\n");
  test::write_bytes(file_, "another\n");
  start(sink);
  EXPECT_EQ(test::bytes_of(folder_ / "metrics.csv.2"), "another\n");
}

TEST_F(csv_sink_test, begins_a_new_file_if_its_own_was_removed) {
  tracker_records records;
  records.report(0, {{{"loss", 1}}});
  csv_sink sink;
  start(sink);
  ASSERT_TRUE(sink.log(records.all()));
  fs::remove(file_);
  auto failed = sink.log(records.all());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
  ASSERT_TRUE(sink.log(records.all()));
  EXPECT_EQ(lines_of(content()).size(), 2u);
}

TEST_F(csv_sink_test, takes_all_rows_again_after_the_disk_was_full) {
  tracker_records records;
  for (std::uint64_t i = 0; i < 40; ++i)
    records.report(i, {{{"loss", i}, {"key_" + std::to_string(i), 1}}});
  const records_span all{records.all()};
  auto whole = written(all);
  fs::remove(file_);
  csv_sink sink;
  start(sink);
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Fails each write in turn: of the new file, of the row.
    ASSERT_TRUE(arm_failpoint(i % 2 == 0 ? "record_file.append=enospc"
                                         : "record_file.append:2=enospc"));
    auto failed = sink.log(all.subspan(i, 1));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
    EXPECT_EQ(failed.error().accepted, 0u);
    EXPECT_EQ(failed.error().reason.code, ec::storage);
    ASSERT_TRUE(arm_failpoint(""));
    ASSERT_TRUE(sink.log(all.subspan(i, 1)));
  }
  EXPECT_EQ(content(), whole);
}

TEST_F(csv_sink_test, reports_once_that_the_disk_is_full_or_read_only) {
  test::small_disk disk{folder_ / "disk", "64k"};
  if (!disk)
    GTEST_SKIP() << "no tmpfs can be mounted: " << disk.reason();
  run_.path = disk.path();
  tracker_records records;
  records.report(0, {{{"text", std::string(60'000, 'x')}}});
  records.report(1, {{{"text", std::string(60'000, 'x')}}});
  const records_span all{records.all()};
  csv_sink sink;
  start(sink);
  auto path = (disk.path() / "metrics.csv").string();
  ASSERT_TRUE(sink.log(all.first(1)) && true);
  auto full = sink.log(all.subspan(1));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().reason.code, ec::storage);
  EXPECT_EQ(lines_of(test::bytes_of(path)).size(), 2u);
  auto state = sink.state();
  ASSERT_TRUE(sink.finish(run_status_kind::errored, records.time()));
  if (!disk.make_read_only())
    GTEST_SKIP() << "the disk cannot be made read-only";
  auto read_only = sink.start(run_, state);
  ASSERT_FALSE(read_only);
  EXPECT_EQ(read_only.error().what, sink_failure::kind::transient);
  EXPECT_EQ(read_only.error().reason.message,
            "cannot open " + path + ": Read-only file system");
}

TEST_F(csv_sink_test, does_not_create_the_folder_of_a_removed_run) {
  run_.path = folder_ / "gone";
  csv_sink sink;
  auto failed = sink.start(run_, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
  EXPECT_FALSE(fs::exists(run_.path));
}

TEST_F(csv_sink_test, refuses_names_that_it_cannot_use) {
  for (const auto* name :
       {"", ".", "..", "a/b.csv", "/tmp/x", "journal.jsonl", "lock", "ranks",
        "attempts", "checkpoints", "callbacks.told", "state.json.new",
        "tensorboard", "end_request", "media", "artifacts", ".owner-7"}) {
    auto refused = csv_sink{{.file = name}}.check(run_);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ec::invalid_config);
  }
  EXPECT_TRUE(csv_sink{}.check(run_));
}

TEST_F(csv_sink_test, can_be_rebuilt_from_its_options) {
  const csv_sink sink{{.file = "x.csv",
                       .ranks = rank_values::each,
                       .non_finite = non_finite::skip}};
  EXPECT_EQ(sink_from_json<csv_sink>(sink.options())->options(),
            sink.options());
  EXPECT_EQ(sink_from_json<csv_sink>("{}")->options(), csv_sink{}.options());
  EXPECT_THROW(sink_from_json<csv_sink>(R"({"ranks":"all"})"),
               std::invalid_argument);
}

} // namespace
} // namespace troupe::internal
