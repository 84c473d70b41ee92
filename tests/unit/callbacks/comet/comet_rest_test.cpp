#include "troupe/callbacks/comet/comet_rest.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

#include "tests/support/loopback_server.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/comet/comet_sink.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::environment_guard;
using test::loopback_reply;
using test::loopback_request;
using test::loopback_server;
using test::record_time;
using test::reply_fault;
using test::run_in;
using test::sink_records;
using test::temporary_folder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(token_bucket_test, allows_a_burst_and_then_the_rate) {
  token_bucket x{240};
  auto now = token_bucket::clock::time_point{} + 1h;
  for (int i = 0; i < 60; ++i)
    EXPECT_TRUE(x.take(now)) << i;
  EXPECT_FALSE(x.take(now));
  EXPECT_FALSE(x.take(now + 200ms));
  EXPECT_TRUE(x.take(now + 250ms));
  EXPECT_FALSE(x.take(now + 250ms));
  EXPECT_NEAR(x.available(now + 1h), 60, 1e-9);
}

TEST(token_bucket_test, says_when_to_retry) {
  token_bucket x{240};
  auto now = token_bucket::clock::time_point{} + 1h;
  while (x.take(now)) {
  }
  EXPECT_EQ(x.until(1), 1s);
  EXPECT_EQ(x.until(20), 5s);
  EXPECT_EQ(x.until(1000), 15s) << "not more than fit at once";
}

constexpr auto secret = "planted0secret0planted0secret";
constexpr auto base = "/api/rest/v2/write/experiment/";

class comet_rest_test : public testing::Test {
protected:
  std::vector<json> bodies(const std::string& call) const {
    std::vector<json> result;
    for (auto& x : server.requests())
      if (x.target == base + call)
        result.push_back(json::parse(x.body));
    return result;
  }

  using fault_type =
    std::function<std::optional<loopback_reply>(const loopback_request&)>;

  /// Sets what the server, on threads of its own, answers from now on.
  void set_fault(fault_type x) {
    std::lock_guard guard{fault_mutex};
    fault = std::move(x);
  }

  loopback_reply answer(const loopback_request& x) {
    std::lock_guard guard{fault_mutex};
    if (fault)
      if (auto reply = fault(x))
        return *reply;
    loopback_reply result;
    if (x.target == base + std::string{"create"})
      result.body = R"({"experimentKey":"made","link":"l"})";
    return result;
  }

  temporary_folder folder;
  std::mutex fault_mutex;
  fault_type fault;
  loopback_server server{[this](auto& x) { return answer(x); }};
  environment_guard guard{
    {{"HOME", folder.path().string()},
     {"COMET_API_KEY", secret},
     {"COMET_URL_OVERRIDE", server.url() + "/clientlib/"}}};
  comet_options options{.workspace = "w", .project = "p", .tags = {"a", "b"}};
  sink_records record;
  tracked_run run = run_in(folder.path());
};

TEST_F(comet_rest_test, makes_the_documented_calls) {
  comet_sink x{options};
  ASSERT_TRUE(x.check(run));
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  test::write_bytes(folder / "a.txt", "text");
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
  EXPECT_TRUE(test::files_with(folder.path(), secret).empty());
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

TEST_F(comet_rest_test, continues_its_experiment_after_a_restart) {
  std::string state;
  {
    comet_sink x{options};
    ASSERT_TRUE(x.start(run, ""));
    state = x.state();
  }
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, state));
  auto row = record.report(0, {{{"a", 1}}});
  ASSERT_TRUE(x.log({&row, 1}));
  EXPECT_EQ(bodies("create").size(), 1u);
  EXPECT_EQ(bodies("parameter").size(), 2u) << "the config is sent once";
  EXPECT_EQ(bodies("metric").at(0).at("experimentKey"), "made");
}

TEST_F(comet_rest_test, makes_one_experiment_however_often_a_start_fails) {
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("parameter") || ++failures % 2 == 0)
      return std::nullopt;
    loopback_reply result;
    result.status = 503;
    return result;
  });
  comet_sink x{options};
  auto starts = 0;
  while (!x.start(run, "") && ++starts < 10) {
  }
  EXPECT_EQ(starts, 2);
  EXPECT_EQ(bodies("create").size(), 1u);
}

TEST_F(comet_rest_test, finds_its_experiment_although_the_reply_was_lost) {
  auto calls = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("create"))
      return std::nullopt;
    loopback_reply result;
    result.status = ++calls == 1 ? 503 : 400;
    result.body = R"({"msg":"the experiment key exists"})";
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, ""));
  auto started = x.start(run, "");
  EXPECT_TRUE(started) << started.error().reason.message;
  EXPECT_EQ(bodies("tags").size(), 1u);
}

TEST_F(comet_rest_test, looks_for_its_experiment_again_after_a_failed_look) {
  auto creations = 0, looks = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    loopback_reply result;
    if (x.target.ends_with("create")) {
      result.status = ++creations == 1 ? 503 : 400;
      result.body = R"({"msg":"the experiment key exists"})";
      return result;
    }
    if (x.target.find("set-status") == x.target.npos || ++looks > 1)
      return std::nullopt;
    result.status = 429;
    result.headers["Retry-After"] = "7";
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, ""));
  auto busy = x.start(run, "");
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().what, sink_failure::kind::transient);
  EXPECT_EQ(busy.error().retry_after, 7s);
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  EXPECT_EQ(looks, 2);
}

TEST_F(comet_rest_test, continues_without_a_refused_tag) {
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("tags"))
      return std::nullopt;
    loopback_reply result;
    if (x.body.find("\"a\"") != x.body.npos) {
      result.status = 400;
      result.body = R"({"msg":"no such tag"})";
      return result;
    }
    if (++failures > 1)
      return std::nullopt;
    result.status = 503;
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, "")) << "at the tag b";
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  EXPECT_THAT(x.take_notes(),
              ElementsAre(AllOf(HasSubstr("tag 'a'"), HasSubstr("no such tag"),
                                Not(HasSubstr(secret)))));
  EXPECT_THAT(x.take_notes(), IsEmpty());
  auto tags = bodies("tags");
  EXPECT_EQ(tags.back().at("addedTags"), json::array({"b"}));
  auto count = tags.size();
  EXPECT_TRUE(x.start(run, x.state()));
  EXPECT_EQ(bodies("tags").size(), count) << "and not again";
  EXPECT_THAT(x.state(), HasSubstr("made"));
}

TEST_F(comet_rest_test, continues_without_refused_parameters_and_others) {
  run.config = {{"lr", 0.5}, {"prompt", "long"}, {"seed", 7}};
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    loopback_reply result;
    result.status = 400;
    result.body = R"({"msg":"too long"})";
    if (x.body.find("\"prompt\"") != x.body.npos
        || x.body.find("\"Name\"") != x.body.npos)
      return result;
    result.status = 503;
    if (x.body.find("\"seed\"") != x.body.npos && ++failures == 1)
      return result;
    return std::nullopt;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, "")) << "at the seed";
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  EXPECT_THAT(x.take_notes(), ElementsAre(AllOf(HasSubstr("parameter 'prompt'"),
                                                HasSubstr("too long")),
                                          HasSubstr("refuses 1 more")));
  std::vector<std::string> names;
  for (auto& body : bodies("parameter"))
    names.push_back(body.at("parameterName"));
  EXPECT_THAT(names, ElementsAre("lr", "prompt", "seed", "seed"));
  auto row = record.report(0, {{{"a", 1}}});
  EXPECT_TRUE(x.log({&row, 1}));
}

TEST_F(comet_rest_test, names_one_of_many_refused_parameters) {
  run.config = metrics{};
  for (int i = 100; i < 200; ++i)
    run.config["p" + std::to_string(i)] = i;
  set_fault([](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("parameter"))
      return std::nullopt;
    loopback_reply result;
    result.status = 400;
    return result;
  });
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  EXPECT_THAT(x.take_notes(), ElementsAre(HasSubstr("parameter 'p100'"),
                                          HasSubstr("refuses 99 more")));
  EXPECT_TRUE(x.start(run, x.state()));
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

TEST_F(comet_rest_test, sends_the_tags_after_a_start_that_failed_at_them) {
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("tags") || ++failures > 2)
      return std::nullopt;
    loopback_reply result;
    result.status = 503;
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, ""));
  EXPECT_FALSE(x.start(run, ""));
  EXPECT_TRUE(x.start(run, ""));
  EXPECT_EQ(bodies("create").size(), 1u);
  EXPECT_EQ(bodies("tags").size(), 3u) << "until they are accepted";
  EXPECT_TRUE(x.start(run, ""));
  EXPECT_EQ(bodies("tags").size(), 3u) << "and not again";
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
  test::write_bytes(folder / "a.txt", "text");
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

TEST_F(comet_rest_test, thins_out_points_rather_than_exceed_the_limit) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  // More points of few metrics than the limit allows at once.
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 50; ++i) {
    metrics values;
    for (int key = 0; key < 60; ++key)
      values["m" + std::to_string(key)] = double(i);
    records.push_back(record.report(i, {values}));
    records.back().time = record_time(1);
  }
  ASSERT_TRUE(x.log(records));
  auto sent = bodies("metric");
  ASSERT_EQ(sent.size(), 60u) << "the latest of each";
  for (auto& body : sent)
    EXPECT_EQ(body.at("step"), 49);
  EXPECT_THAT(x.take_notes(), ElementsAre(HasSubstr("more points")));
}

TEST_F(comet_rest_test, sends_all_points_that_waited_of_a_slow_run) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  // More than the limit allows at once, over more than a minute.
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 100; ++i) {
    metrics values;
    for (int key = 0; key < 30; ++key)
      values["m" + std::to_string(key)] = double(i);
    records.push_back(record.report(i, {values}));
    records.back().time = record_time(2 * i);
  }
  (void) x.log(records); // Perhaps a part, until there is room again.
  EXPECT_GE(bodies("metric").size(), 2700u);
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

// Without a burst that is left, a batch has the time before it, too.
TEST_F(comet_rest_test, sends_all_points_of_a_run_slightly_below_the_limit) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  auto report = [&](std::uint64_t index, int points) {
    metrics values;
    for (int key = 0; key < points; ++key)
      values["m" + std::to_string(key)] = double(index);
    auto result = record.report(index, {values});
    result.time = record_time(20 * index); // Every 10 s.
    return result;
  };
  auto burst = report(0, 2700);
  ASSERT_TRUE(x.log({&burst, 1}));
  std::vector<tracker_record> records{report(1, 1700), report(2, 1700)};
  (void) x.log(records); // Perhaps a part, until there is room again.
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

TEST_F(comet_rest_test, thins_out_nothing_of_a_batch_that_is_sent_in_parts) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 3; ++i) {
    metrics values;
    for (int key = 0; key < 1000; ++key)
      values["m" + std::to_string(key)] = double(i);
    records.push_back(record.report(i, {values}));
    records.back().time = record_time(200 * i);
  }
  set_fault(
    [](const loopback_request&) { return loopback_reply{.status = 500}; });
  ASSERT_FALSE(x.log(records));
  set_fault(nullptr);
  ASSERT_TRUE(x.log(std::span{records}.first(1)));
  EXPECT_EQ(bodies("metric").size(), 1001u) << "one of them twice";
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

TEST_F(comet_rest_test, has_room_for_a_burst_and_what_its_rate_allows) {
  comet_rest x{make_comet_settings(options, run).value(), {}, run};
  EXPECT_EQ(x.room(0s), 2700u);
  EXPECT_EQ(x.room(60s), 2700u + 10800u);
}

} // namespace
} // namespace troupe::internal
