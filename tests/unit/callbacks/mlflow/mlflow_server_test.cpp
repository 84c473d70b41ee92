#include "troupe/callbacks/mlflow/mlflow_server.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/callbacks/mlflow/mlflow_server_fixture.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

// MLflow before 2.8 takes 500 characters.
TEST_F(mlflow_failures_test,
       a_setting_that_is_refused_becomes_a_tag_and_a_note) {
  run.config = {{"lr", 0.5}, {"prompt", std::string(600, 'x')}, {"seed", 7}};
  std::vector<std::string> bodies;
  loopback_server old{[&](const loopback_request& x) -> loopback_reply {
    auto is_long = x.body.find(std::string(600, 'x')) != x.body.npos;
    auto is_params = x.target.find("log-batch") != x.target.npos
                     && x.body.find("\"params\":[{") != x.body.npos;
    if (is_params && is_long)
      return {.status = 400,
              .body = R"({"error_code":"INVALID_PARAMETER_VALUE",)"
                      R"("message":"Param value has length 600"})"};
    if (x.target.find("runs/get") != x.target.npos)
      return {.body = created()};
    std::lock_guard guard{mutex};
    if (x.target.find("log-batch") != x.target.npos)
      bodies.push_back(x.body);
    for (auto& [part, reply] : answers)
      if (x.target.find(part) != x.target.npos)
        return reply;
    return {};
  }};
  mlflow_sink x{{.tracking_uri = old.url()}};
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  EXPECT_THAT(x.take_notes(), testing::ElementsAre(testing::AllOf(
                                HasSubstr("'prompt'"),
                                HasSubstr("Param value has length 600"))));
  EXPECT_THAT(x.take_notes(), testing::IsEmpty());
  std::lock_guard guard{mutex};
  std::string all;
  for (auto& body : bodies)
    all += body;
  EXPECT_THAT(all, HasSubstr("\"lr\""));
  EXPECT_THAT(all, HasSubstr("\"seed\""));
  EXPECT_THAT(all, HasSubstr("troupe.param_refused.prompt"));
}

TEST_F(mlflow_failures_test, searches_before_it_creates) {
  auto x = to_server();
  ASSERT_TRUE(logged(x));
  EXPECT_THAT(targets(),
              testing::ElementsAre("experiments/get-by-name", "runs/search",
                                   "runs/create", "runs/log-batch"));
  auto create = server.requests().at(2);
  EXPECT_EQ(create.headers.at("content-type"), "application/json");
  EXPECT_FALSE(create.headers.contains("transfer-encoding")
               && !create.headers.at("transfer-encoding").empty());
}

TEST_F(mlflow_failures_test,
       uses_an_experiment_that_another_run_created_first) {
  set("experiments/create",
      {.status = 400, .body = R"({"error_code":"RESOURCE_ALREADY_EXISTS"})"});
  std::atomic<int> seen = 0;
  loopback_server racing{[&](const loopback_request& x) {
    if (x.target.find("get-by-name") != x.target.npos && seen++ == 0)
      return loopback_reply{
        .status = 404, .body = R"({"error_code":"RESOURCE_DOES_NOT_EXIST"})"};
    return answer(x);
  }};
  mlflow_sink x{{.tracking_uri = racing.url()}};
  EXPECT_TRUE(x.start(run, ""));
  EXPECT_EQ(seen, 2);
}

TEST_F(mlflow_failures_test, makes_no_second_run_when_the_reply_is_lost) {
  set("runs/create", {.fault = reply_fault::reset});
  auto x = to_server();
  auto failed = x.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_EQ(std::ranges::count(targets(), "runs/create"), 1);
  set("runs/search", {.body = R"({"runs":[{"info":{"run_id":"r1"}}]})"});
  set("runs/get", {.body = created()});
  EXPECT_TRUE(x.start(run, ""));
  EXPECT_EQ(std::ranges::count(targets(), "runs/create"), 1);
  EXPECT_THAT(x.state(), HasSubstr("r1"));
}

TEST_F(mlflow_failures_test,
       skips_a_checkpoint_that_retention_removes_while_it_is_uploaded) {
  auto best = run.path / "checkpoints" / "best";
  fs::create_directories(best);
  write_bytes(best / "a", "bytes");
  write_bytes(best / "z", "bytes");
  write_bytes(best / "manifest.json",
              to_json(manifest{.run_name = run.name, .name = "best"}));
  on_request = [&](const loopback_request& x) {
    if (x.method == "PUT")
      fs::rename(best, run.path / "evicted");
  };
  mlflow_sink x{{.tracking_uri = server.url(), .upload_checkpoints = true}};
  ASSERT_TRUE(x.start(run, ""));
  std::vector<tracker_record> records(1);
  records[0].content =
    journaled_batch{.values = {metrics{{"loss", 1}}}, .checkpoint = "best"};
  auto ok = x.log(records);
  EXPECT_TRUE(ok) << ok.error().reason.message;
  auto requests = server.requests();
  EXPECT_EQ(std::ranges::count(requests, "PUT", &loopback_request::method), 1);
  EXPECT_THAT(requests.back().target, HasSubstr("best/a"));
}

TEST_F(mlflow_failures_test, keeps_the_tags_of_mlflow_of_a_run_that_is_given) {
  set("runs/get",
      {.body = R"({"run":{"info":{"run_id":"r1","lifecycle_stage":"active"},)"
               R"("data":{"tags":[{"key":"mlflow.runName","value":"theirs"},)"
               R"({"key":"troupe.attempt","value":"7"}]}}})"});
  run.tags["user"] = "me";
  mlflow_sink x{{.tracking_uri = server.url(), .run_id = "r1"}};
  ASSERT_TRUE(x.start(run, ""));
  auto again = to_server(); // As `troupe sync` without MLFLOW_RUN_ID.
  ASSERT_TRUE(again.start(run, x.state()));
  std::vector<std::string> tags;
  for (const auto& request : server.requests())
    if (request.target.find("log-batch") != request.target.npos)
      tags.push_back(request.body);
  EXPECT_THAT(tags, testing::SizeIs(2));
  EXPECT_THAT(tags, testing::Each(testing::AllOf(
                      testing::Not(HasSubstr("mlflow.runName")),
                      HasSubstr("mlflow.user"), HasSubstr("troupe.attempt"))));
}

// A trial's parent may have been replaced.
TEST_F(mlflow_failures_test, updates_the_tags_of_mlflow_of_its_own_run) {
  set("runs/get",
      {.body = R"({"run":{"info":{"run_id":"r1","lifecycle_stage":"active"},)"
               R"("data":{"tags":[{"key":"mlflow.parentRunId",)"
               R"("value":"old"}]}}})"});
  mlflow_server store{{.server = server.url()}, {}};
  mlflow_run wanted{.experiment = "e", .uid = "u"};
  wanted.tags.push_back({"mlflow.parentRunId", "new"});
  ASSERT_TRUE(store.open(wanted, R"({"run_id":"r1"})"));
  EXPECT_THAT(server.requests().back().body, HasSubstr("mlflow.parentRunId"));
}

} // namespace
} // namespace troupe::internal::test
