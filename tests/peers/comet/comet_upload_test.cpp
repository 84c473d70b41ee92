#include <cmath>
#include <mutex>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/loopback_server.hpp"
#include "tests/support/peers.hpp"
#include "tests/support/sink_records.hpp"
#include "tests/support/unpacked.hpp"
#include "troupe/callbacks/comet/comet_sink.hpp"

namespace troupe::internal {
namespace {

using nlohmann::json;
using test::loopback_reply;
using test::loopback_request;
using test::loopback_server;
using test::record_time;
using test::run_in;
using test::sink_records;
using test::temporary_folder;
using test::unpacked;

json body_of(const loopback_request& x) {
  auto text = x.body.starts_with("\x1f\x8b") ? unpacked(x.body) : x.body;
  return json::parse(text, nullptr, false);
}

loopback_reply answer(const loopback_request& x) {
  loopback_reply result;
  if (x.target.find("/logger/add/run") != x.target.npos) {
    auto asked = body_of(x);
    result.body = json{
      {"experimentKey", asked.value("experimentKey", "")},
      {"runId", "r"},
      {"projectId", "i"},
      {"workspaceName", "w"},
      {"projectName",
       "p"}}.dump();
  } else if (x.target.find("/status-report/update") != x.target.npos) {
    result.body = R"({"is_alive_beat_duration_millis":10000,)"
                  R"("gpu_monitor_interval_millis":10000,)"
                  R"("cpu_monitor_interval_millis":10000})";
  }
  return result;
}

class comet_upload_test : public testing::Test {
protected:
  void SetUp() override { TROUPE_NEEDS_PEERS(); }

  // Writes a run offline and returns its archive.
  fs::path write_run() {
    comet_options options;
    options.mode = comet_mode::offline;
    options.workspace = "w";
    options.project = "p";
    options.tags = {"tag one"};
    comet_sink sink{options};
    EXPECT_TRUE(sink.start(run, ""));
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto row = record.report(i, {{{"loss", 1.0 / double(i + 1)},
                                    {"nan", std::nan("")},
                                    {"word", "s\xc3\xa4ule"}}});
      EXPECT_TRUE(sink.log({&row, 1}));
    }
    EXPECT_TRUE(sink.finish(run_status_kind::finished, record_time(9)));
    return folder / "comet" / (run.id + ".zip");
  }

  test::peer_result upload(const fs::path& archive) {
    return test::run_peer({"comet", "upload", archive.string()},
                          {{"COMET_URL_OVERRIDE", server.url() + "/clientlib/"},
                           {"COMET_API_KEY", "0123456789012345678901234"},
                           {"COMET_LOGGING_CONSOLE", "INFO"}});
  }

  // The points, parameters or others received, by whichever call.
  std::vector<json> values_of(const std::string& call) const {
    std::vector<json> result;
    for (auto& x : server.requests())
      if (x.target.find(call) != x.target.npos) {
        auto body = body_of(x);
        if (body.contains("values"))
          result.insert(result.end(), body["values"].begin(),
                        body["values"].end());
        else
          result.push_back(body);
      }
    return result;
  }

  temporary_folder folder;
  loopback_server server{answer};
  sink_records record;
  tracked_run run = run_in(folder.path());
};

TEST_F(comet_upload_test, accepts_our_archive_with_all_its_content) {
  auto archive = write_run();
  auto done = upload(archive);
  ASSERT_EQ(done.exit_code, 0) << done.output;
  EXPECT_NE(done.output.find("Number of uploaded experiments: 1"),
            std::string::npos)
    << done.output;
  std::string targets;
  for (auto& x : server.requests())
    targets += x.method + " " + x.target + "\n";
  auto points = values_of("batch/logger/experiment/metric");
  std::vector<double> losses;
  auto nans = 0;
  for (auto& x : points)
    if (x.at("metricName") == "loss") {
      EXPECT_EQ(x.at("step"), losses.size());
      EXPECT_EQ(x.at("timestamp"), 1700000000500 + 500 * losses.size());
      losses.push_back(std::stod(x.at("metricValue").is_string()
                                   ? x.at("metricValue").get<std::string>()
                                   : x.at("metricValue").dump()));
    } else {
      nans += x.at("metricValue") == "NaN";
    }
  EXPECT_EQ(losses, (std::vector<double>{1.0, 0.5, 1.0 / 3})) << targets;
  EXPECT_EQ(nans, 3) << json(points).dump();
  auto parameters = json(values_of("batch/logger/experiment/parameter")).dump();
  EXPECT_NE(parameters.find("optimizer/name"), parameters.npos) << targets;
  auto others = json(values_of("log-other")).dump();
  for (auto part : {"\"Name\"", "\"digits\"", "s\xc3\xa4ule", "troupe.status"})
    EXPECT_NE(others.find(part), others.npos) << part << others << targets;
  auto tags = json(values_of("add-tags-to-experiment")).dump();
  EXPECT_NE(tags.find("tag one"), tags.npos) << tags << targets;
  auto opened = values_of("/logger/add/run").at(0);
  EXPECT_EQ(opened.at("experimentKey"), run.id) << opened.dump();
}

TEST_F(comet_upload_test, refuses_an_archive_that_was_cut) {
  auto archive = write_run();
  fs::resize_file(archive, fs::file_size(archive) / 2);
  EXPECT_NE(upload(archive).exit_code, 0);
}

} // namespace
} // namespace troupe::internal
