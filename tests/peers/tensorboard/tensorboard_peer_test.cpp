#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/chromium.hpp"
#include "tests/support/event_file.hpp"
#include "tests/support/peer_server.hpp"
#include "tests/support/peers.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tracker_records.hpp"
#include "troupe/callbacks/encoding/png.hpp"
#include "troupe/callbacks/tensorboard/tensorboard_sink.hpp"

namespace troupe::internal {
namespace {

using nlohmann::json;
using test::tracker_records;
using records_span = std::span<const tracker_record>;

// All that TensorBoard's own reader finds in a folder. Scalars as (step, bits
// of the float); images and texts in hex.
constexpr auto reader = R"py(
import json, struct, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from google.protobuf import json_format

events = EventAccumulator(sys.argv[1], size_guidance={
    'scalars': 0, 'tensors': 0, 'histograms': 0, 'images': 0})
events.Reload()
tags = events.Tags()
bits = lambda x: struct.unpack('<I', struct.pack('<f', x))[0]
result = {
    'scalars': {tag: [[x.step, bits(x.value)] for x in events.Scalars(tag)]
                for tag in tags['scalars']},
    'times': {tag: [x.wall_time for x in events.Scalars(tag)]
              for tag in tags['scalars']},
    'texts': {tag: [[x.step, x.tensor_proto.string_val[0].hex()]
                    for x in events.Tensors(tag)]
              for tag in tags['tensors']
              if events.SummaryMetadata(tag).plugin_data.plugin_name == 'text'},
    'images': {tag: [[x.step, x.width, x.height, x.encoded_image_string.hex()]
                     for x in events.Images(tag)] for tag in tags['images']},
    'histograms': {tag: [[x.step, x.histogram_value.min, x.histogram_value.max,
                          x.histogram_value.num, x.histogram_value.sum,
                          x.histogram_value.sum_squares,
                          list(x.histogram_value.bucket_limit),
                          list(x.histogram_value.bucket)]
                         for x in events.Histograms(tag)]
                   for tag in tags['histograms']},
}
print(json.dumps(result))
)py";

json read_by_peer(const fs::path& folder) {
  auto read = test::run_peer_script(reader, {folder.string()});
  EXPECT_EQ(read.exit_code, 0) << read.output;
  // Warnings may come before it.
  auto line = read.output.rfind("\n{", read.output.size());
  return json::parse(line == std::string::npos ? read.output
                                               : read.output.substr(line));
}

std::uint32_t bits(float x) {
  std::uint32_t result;
  std::memcpy(&result, &x, sizeof(x));
  return result;
}

std::string hex(const std::string& bytes) {
  std::string result;
  for (unsigned char c : bytes) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", c);
    result += text;
  }
  return result;
}

class tensorboard_peer_test : public testing::Test {
protected:
  void SetUp() override { TROUPE_NEEDS_PEERS(); }

  // Writes a whole run, with its end.
  void write(const tracker_records& records,
             run_status_kind status = run_status_kind::finished) {
    tensorboard_sink sink;
    start(sink);
    auto done = sink.log(records.all());
    ASSERT_TRUE(done) << done.error().reason.message;
    ASSERT_TRUE(sink.finish(status, records.time()));
  }

  void start(tensorboard_sink& sink, const std::string& state = {}) {
    auto done = sink.start(run_, state);
    ASSERT_TRUE(done) << done.error().reason.message;
  }

  test::temporary_folder folder_;
  tracked_run run_ = test::tracked_run_in(folder_.path());
  fs::path events_ = folder_ / "tensorboard";
};

TEST_F(tensorboard_peer_test, reads_back_every_scalar_bit_for_bit) {
  using limits = std::numeric_limits<double>;
  std::mt19937_64 random{2026};
  std::vector<double> values{0.0,
                             -0.0,
                             0.1,
                             -1e-40, // a float's denormal
                             1e300,
                             limits::infinity(),
                             -limits::infinity(),
                             limits::quiet_NaN(),
                             16777217.0};
  for (int i = 0; i < 200; ++i)
    values.push_back(std::ldexp(static_cast<double>(random() >> 11),
                                int(random() % 200) - 150));
  tracker_records records;
  records.attempt(0, 0);
  auto expected = json::array();
  for (std::size_t i = 0; i < values.size(); ++i) {
    records.report(i, {{{"train/loss", values[i]}, {"größe", true}}});
    expected.push_back({i, std::isnan(values[i])
                             ? 0x7fc00000u
                             : bits(static_cast<float>(values[i]))});
  }
  write(records);
  auto read = read_by_peer(events_);
  EXPECT_EQ(read["scalars"]["train/loss"], expected);
  EXPECT_EQ(read["scalars"]["größe"].size(), values.size());
  EXPECT_EQ(read["times"]["train/loss"][0], 1767225601.0);
}

TEST_F(tensorboard_peer_test, reads_back_texts_histograms_and_images) {
  std::vector<std::uint8_t> pixels(4 * 3 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(i * 7);
  auto png = encode_png(4, 3, 3, pixels);
  ASSERT_TRUE(png);
  test::write_bytes(folder_ / "a.png", *png);
  tracker_records records;
  records.attempt(0, 0);
  records.report(0, {{{"phase", "warm"}}});
  records.report(1, {{{"phase", "warm"}}});
  records.report(2, {{{"phase", "größe"}}});
  records.add(logged_text{5, "note", "**hi**"});
  records.add(logged_histogram{6, "w", -1, 1, 0.5, 2, {0, 1}, {1, 2}});
  records.add(logged_image{7, "sample", folder_ / "a.png", 4, 3, 3});
  write(records);
  auto read = read_by_peer(events_);
  EXPECT_EQ(read["texts"]["phase"],
            (json{{0, hex("warm")}, {2, hex("größe")}}));
  EXPECT_EQ(read["texts"]["note"], (json{{5, hex("**hi**")}}));
  EXPECT_EQ(
    read["histograms"]["w"],
    json::parse("[[6, -1.0, 1.0, 3.0, 0.5, 2.0, [0.0, 1.0], [1.0, 2.0]]]"));
  EXPECT_EQ(read["images"]["sample"],
            json::array({json::array({7, 4, 3, hex(*png)})}));
}

TEST_F(tensorboard_peer_test, forgets_reports_that_were_lost_to_a_rollback) {
  write(test::hard_run());
  auto read = read_by_peer(events_);
  const auto& loss = read["scalars"]["loss"];
  ASSERT_EQ(loss.size(), 90u);
  for (std::size_t i = 0; i < loss.size(); ++i)
    EXPECT_EQ(
      loss[i],
      json({i, bits(static_cast<float>(1.0 / static_cast<double>(i + 1)))}));
  // Report 40 came 41 s after the begin, and again 21 s later.
  EXPECT_EQ(read["times"]["loss"][40], 1767225600.0 + 62);
  EXPECT_EQ(read["scalars"].size(), 8u + 1 + 1100);
}

TEST_F(tensorboard_peer_test, keeps_what_the_loop_logged_before_a_checkpoint) {
  tracker_records records;
  records.attempt(0, 0);
  for (std::uint64_t i = 0; i < 4; ++i) {
    for (std::int64_t step = 0; step < 100; ++step)
      records.add(logged_metrics{static_cast<std::int64_t>(i) * 100 + step,
                                 {{"batch_loss", step}}});
    records.report(i, {{{"loss", i}}}, i == 1 ? "checkpoint" : "");
  }
  records.attempt(1, 2);
  records.add(logged_metrics{200, {{"batch_loss", -1}}});
  write(records);
  auto read = read_by_peer(events_);
  const auto& logged = read["scalars"]["batch_loss"];
  ASSERT_EQ(logged.size(), 201u);
  EXPECT_EQ(logged[199], json({199, bits(99.0F)}));
  EXPECT_EQ(logged[200], json({200, bits(-1.0F)}));
}

TEST_F(tensorboard_peer_test, reads_all_whole_records_before_a_torn_one) {
  tracker_records records;
  records.attempt(0, 0);
  for (std::uint64_t i = 0; i < 10; ++i)
    records.report(i, {{{"loss", i}}});
  tensorboard_sink sink;
  start(sink);
  ASSERT_TRUE(sink.log(records.all()));
  auto file = test::event_files_in(events_).back();
  test::write_bytes(file,
                    test::bytes_of(file).substr(0, fs::file_size(file) - 3));
  EXPECT_EQ(read_by_peer(events_)["scalars"]["loss"].size(), 9u);
  // The next start cuts it off and continues.
  tensorboard_sink second;
  start(second, sink.state());
}

// The body of a reply, of which chunked ones keep their sizes.
json json_of(const std::string& body) {
  auto begin = body.find_first_of("[{");
  auto end = body.find_last_of("]}");
  return begin == body.npos
           ? json{}
           : json::parse(body.substr(begin, end - begin + 1), nullptr, false);
}

class tensorboard_server_test : public tensorboard_peer_test {
protected:
  void serve() {
    server_.emplace(test::peer_server_options{
      {"tensorboard", "--logdir", folder_.path().string(), "--host",
       "127.0.0.1", "--port", "{port}", "--reload_interval", "1"},
      {},
      "/data/runs"});
  }

  // What the server answers once it is *complete*: it loads files in the
  // background.
  template <class Complete>
  json ask(const std::string& path, Complete complete) {
    auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    json answer;
    while (std::chrono::steady_clock::now() < limit) {
      if (auto reply = test::http_get(server_->port(), path);
          reply && reply->status == 200) {
        answer = json_of(reply->body);
        if (complete(answer))
          return answer;
      }
    }
    ADD_FAILURE() << path << ": " << answer;
    return answer;
  }

  // The document that a browser makes of the page at *url*. It reaches nothing
  // but this host.
  static std::string page_of(const std::string& url,
                             const fs::path& screenshot) {
    test::temporary_folder folder;
    auto command =
      "exec '" + test::chromium_program().value()
      + "' --headless --no-sandbox --disable-gpu --disable-3d-apis"
        " --no-first-run --dump-dom --hide-scrollbars"
        " --virtual-time-budget=20000 --disable-background-networking"
        " --disable-component-update --disable-dev-shm-usage"
        " '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1'"
        " --window-size=1360,1000 --user-data-dir='"
      + (folder / "profile").string() + "' --screenshot='" + screenshot.string()
      + "' '" + url + "' >dom.html 2>log.txt";
    test::peer_process browser{
      {"/bin/sh", "-c", command},
      {{"HOME", folder.path().string()}, {"PATH", std::getenv("PATH")}},
      folder / "shell.txt"};
    EXPECT_EQ(browser.wait(), 0) << test::bytes_of(folder / "log.txt");
    return test::bytes_of(folder / "dom.html");
  }

  std::optional<test::peer_server> server_;
};

TEST_F(tensorboard_server_test, shows_curves_texts_and_how_the_run_ended) {
  auto records = test::hard_run();
  records.add(logged_text{5, "note", "hi"});
  write(records, run_status_kind::errored);
  serve();
  EXPECT_EQ(ask("/data/runs", [](const json& x) { return !x.empty(); }),
            json({"tensorboard"}));
  auto loss = ask("/data/plugin/scalars/scalars?run=tensorboard&tag=loss",
                  [](const json& x) { return x.size() == 90; });
  EXPECT_EQ(loss[89][1], 89);
  EXPECT_EQ(loss[1][2], 0.5);
  auto odd = ask("/data/plugin/scalars/scalars?run=tensorboard&tag=odd",
                 [](const json& x) { return x.size() == 90; });
  EXPECT_EQ(odd[0][2], "NaN");
  EXPECT_EQ(odd[1][2], "Infinity");
  EXPECT_EQ(odd[2][2], "-Infinity");
  auto note = ask("/data/plugin/text/text?run=tensorboard&tag=note",
                  [](const json& x) { return !x.empty(); });
  EXPECT_EQ(note[0]["step"], 5);
  auto groups = test::run_peer_script(R"py(
import json, sys, urllib.request
body = {"experimentName": "", "allowedStatuses": [
            "STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [], "startIndex": 0, "sliceSize": 10}
request = urllib.request.Request(
    sys.argv[1] + "/data/plugin/hparams/session_groups",
    json.dumps(body).encode(), {"Content-Type": "application/json"})
print(json.dumps(json.load(urllib.request.urlopen(request))))
)py",
                                      {server_->url()});
  auto group = json_of(groups.output)["sessionGroups"][0];
  EXPECT_EQ(group["hparams"], json::parse(R"({"lr": 0.1, "epochs": 3.0,
    "optimizer/name": "adam", "amp": true})"))
    << groups.output;
  EXPECT_EQ(group["name"], "fashion");
  EXPECT_EQ(group["sessions"][0]["status"], "STATUS_FAILURE");
  EXPECT_EQ(group["sessions"][0]["startTimeSecs"], 1767225600.0);
}

// Points of the lines that a page has drawn as SVG, the longest line first.
std::vector<std::vector<std::pair<double, double>>>
lines_of(const std::string& dom) {
  std::vector<std::vector<std::pair<double, double>>> result;
  for (auto at = dom.find(" d=\"M"); at != dom.npos;
       at = dom.find(" d=\"M", at + 1)) {
    std::istringstream text{dom.substr(at + 4, dom.find('"', at + 4) - at - 4)};
    auto& points = result.emplace_back();
    char command = 0, comma = 0;
    double x = 0, y = 0;
    while (text >> command >> x >> comma >> y && comma == ',')
      points.emplace_back(x, y);
  }
  std::ranges::sort(result, std::ranges::greater{},
                    [](const auto& x) { return x.size(); });
  return result;
}

TEST_F(tensorboard_server_test, draws_the_curve_in_a_browser) {
  TROUPE_NEEDS_CHROMIUM();
  constexpr std::size_t count = 100;
  auto value = [](std::size_t i) { return 1.0 / static_cast<double>(i + 1); };
  tracker_records records;
  records.attempt(0, 0);
  for (std::size_t i = 0; i < count; ++i)
    records.report(i, {{{"train/loss", value(i)}}});
  write(records);
  serve();
  ask("/data/plugin/scalars/scalars?run=tensorboard&tag=train%2Floss",
      [](const json& x) { return x.size() == count; });
  auto screenshot = fs::path{TROUPE_SCREENSHOTS} / "tensorboard.png";
  fs::remove(screenshot);
  // Without WebGL the page draws its lines as SVG, which the DOM shows.
  auto dom = page_of(server_->url() + "/#timeseries", screenshot);
  EXPECT_NE(dom.find("title=\"train/loss\""), dom.npos);
  auto lines = lines_of(dom);
  ASSERT_GE(lines.size(), 2u);
  // One line is the values, the other smoothed: which is which does not show.
  auto is_curve = [&](const auto& points) {
    if (points.size() != count)
      return false;
    auto [x0, y0] = points.front();
    auto [x1, y1] = points.back();
    for (std::size_t i = 0; i < count; ++i) {
      auto [x, y] = points[i];
      auto along = static_cast<double>(i) / (count - 1);
      auto up = (value(i) - value(0)) / (value(count - 1) - value(0));
      if (std::abs((x - x0) / (x1 - x0) - along) > 1e-3
          || std::abs((y - y0) / (y1 - y0) - up) > 1e-3)
        return false;
    }
    return true;
  };
  EXPECT_TRUE(std::ranges::any_of(lines, is_curve));
  EXPECT_EQ(test::bytes_of(screenshot).substr(1, 3), "PNG");
}

} // namespace
} // namespace troupe::internal
