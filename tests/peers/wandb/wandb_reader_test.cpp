#include <cmath>
#include <sstream>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/peers.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/encoding/png.hpp"
#include "troupe/callbacks/wandb/wandb_sink.hpp"

namespace troupe::internal {
namespace {

using nlohmann::json;
using test::record_time;
using test::run_in;
using test::sink_records;
using test::temporary_folder;
using test::write_bytes;

// What W&B's own reader finds in *folder*.
std::vector<json> inspect(const fs::path& folder) {
  auto read =
    test::run_peer({"wandb", "leet", "inspect", "--json", folder.string()});
  EXPECT_EQ(read.exit_code, 0) << read.output;
  std::vector<json> result;
  std::istringstream lines{read.output};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("{"))
      result.push_back(json::parse(line));
  return result;
}

json summary_of(const fs::path& folder) {
  auto read = test::run_peer(
    {"wandb", "leet", "inspect", "--summary", "--json", folder.string()});
  EXPECT_EQ(read.exit_code, 0) << read.output;
  return json::parse(read.output.substr(read.output.find('{')));
}

std::vector<json> of_type(const std::vector<json>& all, const char* type) {
  std::vector<json> result;
  for (auto& x : all)
    if (x.at("type") == type)
      result.push_back(x.at(type));
  return result;
}

class wandb_reader_test : public testing::Test {
protected:
  void SetUp() override {
    TROUPE_NEEDS_PEERS();
    fs::create_directory(folder / "logs");
    options.mode = wandb_mode::offline;
    options.project = "p";
    options.tags = {"a", "b"};
    options.group = "g";
    options.job_type = "j";
    options.notes = "n";
  }

  fs::path fragment() const {
    return wandb_fragments(folder / "wandb", run.id).value().back().path;
  }

  temporary_folder folder;
  wandb_options options;
  sink_records record;
  tracked_run run = run_in(folder.path());
};

TEST_F(wandb_reader_test, finds_everything_about_a_run) {
  run.config["nan"] = std::nan("");
  run.status = [] { return run_status{}; };
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  write_bytes(folder / "logs/rank_0.log", "hello\nworld\n");
  auto row = record.report(0, {{{"loss", 0.5}, {"val/acc", 0.25}}});
  ASSERT_TRUE(sink.log({&row, 1}));
  std::vector<tracker_record> more{record(logged_params{{{"seed", 7}}}),
                                   record.report(1, {{{"loss", std::nan("")},
                                                      {"up", HUGE_VAL},
                                                      {"down", -HUGE_VAL},
                                                      {"big", 9007199254740993},
                                                      {"flag", true},
                                                      {"word", "s\xc3\xa4ule"},
                                                      {"\xc3\xa9", 1.0}}})};
  ASSERT_TRUE(sink.log(more));
  ASSERT_TRUE(sink.finish(run_status_kind::finished, record_time(20)));
  auto all = inspect(fragment());
  EXPECT_EQ(all.front().at("type"), "header");
  auto about = of_type(all, "run").at(0);
  EXPECT_EQ(about.at("run_id"), run.id);
  EXPECT_EQ(about.at("project"), "p");
  EXPECT_EQ(about.at("display_name"), "digits");
  EXPECT_EQ(about.at("run_group"), "g");
  EXPECT_EQ(about.at("job_type"), "j");
  EXPECT_EQ(about.at("notes"), "n");
  EXPECT_EQ(about.at("tags"), (json{"a", "b"}));
  EXPECT_FALSE(about.contains("resume")) << "the first is sent from row 0 on";
  auto config = about.at("config").at("update");
  EXPECT_EQ(config.at("lr"), 0.1);
  EXPECT_EQ(config.at("optimizer/name"), "sgd");
  EXPECT_EQ(config.at("nan"), nullptr);
  EXPECT_EQ(config.at("troupe.host"), "here");
  auto rows = of_type(all, "history");
  ASSERT_EQ(rows.size(), 2u);
  auto first = rows[0].at("item");
  EXPECT_EQ(first.at("loss"), 0.5);
  EXPECT_EQ(first.at("val/acc"), 0.25);
  EXPECT_EQ(first.at("_step"), 0);
  EXPECT_EQ(first.at("_runtime"), 0.5);
  EXPECT_EQ(first.at("_timestamp"), 1700000000.5);
  auto second = rows[1].at("item");
  EXPECT_EQ(second.at("loss"), "NaN");
  EXPECT_EQ(second.at("up"), "Infinity");
  EXPECT_EQ(second.at("down"), "-Infinity");
  EXPECT_EQ(second.at("big"), 9007199254740993);
  EXPECT_EQ(second.at("flag"), true);
  EXPECT_EQ(second.at("word"), "s\xc3\xa4ule");
  EXPECT_EQ(second.at("\xc3\xa9"), 1.0);
  EXPECT_EQ(of_type(all, "config").back().at("update").at("seed"), 7);
  auto stats = of_type(all, "stats");
  ASSERT_EQ(stats.size(), 1u);
  EXPECT_TRUE(stats[0].at("item").contains("proc.memory.rssMB"));
  auto console = of_type(all, "output_raw");
  ASSERT_EQ(console.size(), 2u);
  EXPECT_EQ(console[1].at("line"), "world\n");
  EXPECT_EQ(of_type(all, "environment").at(0).at("host"), "here");
  EXPECT_EQ(of_type(all, "exit").at(0).at("exit_code"), 0);
}

TEST_F(wandb_reader_test, finds_the_latest_values_and_the_end) {
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto row = record.report(i, {{{"loss", 1.0 / double(i + 1)}}});
    ASSERT_TRUE(sink.log({&row, 1}));
  }
  ASSERT_TRUE(sink.finish(run_status_kind::errored, record_time(20)));
  auto found = summary_of(fragment()).dump();
  EXPECT_NE(found.find("0.3333333333333333"), found.npos) << found;
  EXPECT_NE(found.find("\"exit_code\":1"), found.npos) << found;
}

TEST_F(wandb_reader_test, finds_images_histograms_and_files) {
  auto png = folder / "image.png";
  const std::vector<std::uint8_t> pixels(3 * 2 * 2, 200);
  write_bytes(png, encode_png(2, 2, 3, pixels).value());
  write_bytes(folder / "model.txt", "weights");
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  logged_histogram histogram{4, "h", 0, 2, 3, 5, {1, 2}, {10, 20}};
  std::vector<tracker_record> records{
    record(logged_image{4, "val/sample", png, 2, 2, 3}), record(histogram),
    record(logged_text{4, "note", "hello"}),
    record(logged_artifact{folder / "model.txt", "models/m.txt"})};
  ASSERT_TRUE(sink.log(records));
  ASSERT_TRUE(sink.finish(run_status_kind::finished, record_time(20)));
  auto all = inspect(fragment());
  auto rows = of_type(all, "history");
  ASSERT_EQ(rows.size(), 1u) << "what has one step is one row";
  auto item = rows[0].at("item");
  EXPECT_EQ(item.at("val/sample._type"), "image-file");
  EXPECT_EQ(item.at("val/sample.width"), 2);
  EXPECT_EQ(item.at("h._type"), "histogram");
  EXPECT_EQ(item.at("h.values"), (json{10.0, 20.0}));
  EXPECT_EQ(item.at("h.bins"), (json{0.0, 1.0, 2.0}));
  EXPECT_EQ(item.at("note"), "hello");
  EXPECT_EQ(item.at("_step"), 4);
  auto path = item.at("val/sample.path").get<std::string>();
  auto files = json(of_type(all, "files")).dump();
  EXPECT_NE(files.find(path), files.npos) << files;
  EXPECT_NE(files.find("models/m.txt"), files.npos) << files;
  EXPECT_EQ(test::bytes_of(fragment() / "files" / path), test::bytes_of(png));
  EXPECT_EQ(test::bytes_of(fragment() / "files/models/m.txt"), "weights");
}

TEST_F(wandb_reader_test, reads_large_records_over_block_borders) {
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  std::string text(70'000, 'x');
  for (int i = 0; i < 5; ++i) {
    auto x = record(logged_text{i, "text", text + std::to_string(i)});
    ASSERT_TRUE(sink.log({&x, 1}));
  }
  ASSERT_TRUE(sink.finish(run_status_kind::finished, record_time(20)));
  auto rows = of_type(inspect(fragment()), "history");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[4].at("item").at("text"), text + "4");
}

TEST_F(wandb_reader_test, reads_everything_behind_a_torn_tail) {
  std::string state;
  {
    wandb_sink sink{options};
    ASSERT_TRUE(sink.start(run, ""));
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto row = record.report(i, {{{"loss", 1.0}}});
      ASSERT_TRUE(sink.log({&row, 1}));
      if (i == 1)
        state = sink.state();
    }
  }
  auto first = wandb_fragments(folder / "wandb", run.id).value()[0];
  fs::resize_file(first.log(), fs::file_size(first.log()) - 3);
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, state));
  auto all = inspect(first.path);
  // Only the summary behind the last row is torn.
  EXPECT_EQ(of_type(all, "history").size(), 3u);
  EXPECT_EQ(of_type(all, "exit").at(0).at("exit_code"), 1);
  auto second = wandb_fragments(folder / "wandb", run.id).value()[1];
  EXPECT_EQ(of_type(inspect(second.path), "run").at(0).at("resume"), true);
}

} // namespace
} // namespace troupe::internal
