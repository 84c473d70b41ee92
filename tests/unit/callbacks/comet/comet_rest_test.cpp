#include "troupe/callbacks/comet/comet_rest.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/callbacks/comet/comet_rest_fixture.hpp"

namespace troupe::internal::test {
namespace {

TEST_F(comet_rest_test, makes_the_documented_calls) {
  comet_sink x{options};
  ASSERT_TRUE(x.check(run));
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  write_bytes(folder / "a.txt", "text");
  std::vector<tracker_record> records{
    record.report(4, {{{"loss", 0.5}, {"nan", std::nan("")}, {"word", "x"}}}),
    record(logged_params{{{"seed", 7}}}),
    record(logged_artifact{folder / "a.txt", "files/a b.txt"})};
  auto logged = x.log(records);
  ASSERT_TRUE(logged) << logged.error().reason.message;
  ASSERT_TRUE(x.finish(run_status_kind::finished, record_time(9)));
  auto create = bodies("create").at(0);
  EXPECT_EQ(create.at("workspaceName"), "w");
  EXPECT_EQ(create.at("projectName"), "p");
  EXPECT_EQ(create.at("experimentName"), "digits");
  EXPECT_EQ(bodies("tags").at(0),
            (json{{"experimentKey", "made"}, {"addedTags", {"a", "b"}}}));
  EXPECT_EQ(bodies("metric"), (std::vector<json>{{{"experimentKey", "made"},
                                                  {"metricName", "loss"},
                                                  {"metricValue", 0.5},
                                                  {"timestamp", 1700000000500},
                                                  {"step", 4}},
                                                 {{"experimentKey", "made"},
                                                  {"metricName", "nan"},
                                                  {"metricValue", "NaN"},
                                                  {"timestamp", 1700000000500},
                                                  {"step", 4}}}));
  auto parameters = bodies("parameter");
  EXPECT_EQ(parameters.size(), 3u) << "two of the config";
  EXPECT_EQ(parameters.back(), (json{{"experimentKey", "made"},
                                     {"parameterName", "seed"},
                                     {"parameterValue", 7}}));
  EXPECT_EQ(bodies("set-start-end-time").at(0),
            (json{{"experimentKey", "made"},
                  {"startTimeMillis", 1700000000000},
                  {"endTimeMillis", 1700000004500}}));
  auto all = server.requests();
  EXPECT_EQ(all.back().target, base + std::string{"stop?experimentKey=made"});
  EXPECT_EQ(all.back().method, "GET");
  for (auto& request : all)
    EXPECT_EQ(request.headers.at("authorization"), secret);
  auto asset = std::ranges::find_if(all, [](auto& request) {
    return request.target.find("upload-asset") != std::string::npos;
  });
  ASSERT_NE(asset, all.end());
  EXPECT_EQ(asset->target,
            base
              + std::string{"upload-asset?experimentKey=made&fileName="
                            "files%2Fa%20b.txt&type=asset"});
  EXPECT_NE(asset->body.find("\r\n\r\ntext\r\n"), std::string::npos);
  EXPECT_EQ((x.state() + x.options()).find(secret), std::string::npos);
  EXPECT_TRUE(files_with(folder.path(), secret).empty());
}

TEST_F(comet_rest_test, sends_all_points_over_one_connection) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  metrics values;
  for (int i = 0; i < 50; ++i)
    values["m" + std::to_string(i)] = i;
  auto row = record.report(0, {values});
  ASSERT_TRUE(x.log({&row, 1}));
  std::set<int> connections;
  auto points = 0;
  for (auto& request : server.requests())
    if (request.target == base + std::string{"metric"}) {
      connections.insert(request.connection);
      ++points;
    }
  EXPECT_EQ(points, 50);
  // A kept connection lives 4 s; a slow host may need a second one.
  EXPECT_LE(connections.size(), 2u);
}

TEST_F(comet_rest_test, repeats_only_what_was_not_accepted) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  set_fault(
    [](const loopback_request& request) -> std::optional<loopback_reply> {
      if (request.body.find("\"c\"") == std::string::npos)
        return std::nullopt;
      loopback_reply busy;
      busy.status = 429;
      busy.headers["Retry-After"] = "7";
      return busy;
    });
  std::vector<tracker_record> records{
    record.report(0, {{{"a", 1}}}),
    record.report(1, {{{"b", 2}, {"c", 3}, {"d", 4}, {"text", "t"}}}),
    record.report(2, {{{"e", 5}}})};
  auto busy = x.log(records);
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().what, sink_failure::kind::transient);
  EXPECT_EQ(busy.error().retry_after, std::chrono::seconds{7});
  EXPECT_EQ(busy.error().accepted, 1u);
  set_fault(nullptr);
  ASSERT_TRUE(x.log(std::span{records}.subspan(1)));
  std::vector<std::string> names;
  for (auto& body : bodies("metric"))
    names.push_back(body.at("metricName"));
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c", "c", "d", "e"}));
  auto texts = bodies("log-other");
  EXPECT_EQ(std::ranges::count(texts, json("text"),
                               [](auto& body) { return body.at("key"); }),
            1);
}

// After a failure, fewer records may be sent at once.
TEST_F(comet_rest_test, loses_no_text_of_a_batch_that_is_sent_in_parts) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  set_fault(
    [](const loopback_request&) { return loopback_reply{.status = 500}; });
  std::vector<tracker_record> records{record.report(0, {{{"a", 1}}}),
                                      record.report(1, {{{"text", "t"}}})};
  ASSERT_FALSE(x.log(records));
  set_fault(nullptr);
  ASSERT_TRUE(x.log(std::span{records}.first(1)));
  ASSERT_TRUE(x.log(std::span{records}.last(1)));
  auto texts = bodies("log-other");
  EXPECT_EQ(std::ranges::count(texts, json("text"),
                               [](auto& body) { return body.at("key"); }),
            1);
}

TEST_F(comet_rest_test, names_the_settings_that_a_refusal_is_about) {
  for (auto status : {401, 403, 400, 404}) {
    set_fault([=](const loopback_request&) {
      loopback_reply result;
      result.status = status;
      result.body = std::string{R"({"msg":"no such key )"} + secret + "\"}";
      return result;
    });
    comet_sink x{options};
    auto refused = x.start(run, "");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().what, sink_failure::kind::permanent) << status;
    auto& said = refused.error().reason.message;
    EXPECT_NE(said.find("COMET_API_KEY"), said.npos) << said;
    EXPECT_NE(said.find("COMET_WORKSPACE"), said.npos) << said;
    EXPECT_EQ(said.find(secret), said.npos) << said;
  }
}

TEST_F(comet_rest_test, treats_faults_of_the_server_as_transient) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  std::uint64_t index = 0;
  for (auto what :
       {reply_fault::close, reply_fault::reset, reply_fault::truncated}) {
    set_fault([=](const loopback_request&) {
      loopback_reply result;
      result.fault = what;
      return result;
    });
    auto row = record.report(index++, {{{"a", 1}}});
    auto failed = x.log({&row, 1});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
    set_fault(nullptr);
    EXPECT_TRUE(x.log({&row, 1}));
  }
}

// As a gateway does while its service restarts.
TEST_F(comet_rest_test, waits_for_a_service_whose_gateway_answers_404) {
  auto none = [](const loopback_request&) {
    return loopback_reply{.status = 404, .body = "404 page not found"};
  };
  set_fault(none);
  comet_sink x{options};
  auto failed = x.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
  set_fault(nullptr);
  ASSERT_TRUE(x.start(run, ""));
  set_fault(none);
  auto row = record.report(0, {{{"a", 1}}});
  failed = x.log({&row, 1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
  EXPECT_TRUE(failed.error().suspect);
}

TEST_F(comet_rest_test, suspects_an_asset_if_other_calls_succeed) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  write_bytes(folder / "a.txt", "text");
  auto asset = record(logged_artifact{folder / "a.txt", "a.txt"});
  for (auto status : {403, 503}) {
    std::atomic<bool> all = false;
    set_fault(
      [&](const loopback_request& request) -> std::optional<loopback_reply> {
        if (!all && request.target.find("upload-asset") == request.target.npos)
          return std::nullopt;
        return loopback_reply{.status = status};
      });
    auto failed = x.log({&asset, 1});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, sink_failure::kind::transient) << status;
    EXPECT_TRUE(failed.error().suspect) << status;
    EXPECT_EQ(failed.error().reason.code, ec::storage) << status;
    all = true;
    failed = x.log({&asset, 1});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().reason.code, ec::protocol) << status;
    EXPECT_FALSE(failed.error().suspect) << status;
  }
}

TEST_F(comet_rest_test, believes_no_page_that_a_point_was_taken) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  set_fault([](const loopback_request&) {
    return loopback_reply{.body = " <!DOCTYPE html><title>Log in</title>"};
  });
  auto row = record.report(0, {{{"a", 1}}});
  auto failed = x.log({&row, 1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
  EXPECT_EQ(failed.error().accepted, 0u);
}

} // namespace
} // namespace troupe::internal::test
