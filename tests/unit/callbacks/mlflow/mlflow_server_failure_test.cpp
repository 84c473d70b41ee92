// What a server refuses, breaks or loses.

#include <atomic>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/http_get.hpp"
#include "tests/unit/callbacks/mlflow/mlflow_server_fixture.hpp"
#include "troupe/callbacks/mlflow/mlflow_server.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

TEST_F(mlflow_failures_test, waits_for_a_server_that_is_down) {
  mlflow_sink x{
    {.tracking_uri = "http://127.0.0.1:" + std::to_string(free_port())}};
  auto failed = x.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
}

TEST_F(mlflow_failures_test, names_a_server_that_is_not_mlflow_without_login) {
  set("experiments/get-by-name", {.body = "<html>log in</html>"});
  auto address = server.url();
  mlflow_sink x{{.tracking_uri = "http://me:planted@" + address.substr(7)}};
  auto failed = x.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().reason.message,
              testing::StartsWith(address + " does not answer as MLflow does"));
}

TEST_F(mlflow_failures_test, waits_as_long_as_a_busy_server_wants) {
  for (int status : {429, 503}) {
    set("log-batch", {.status = status, .headers = {{"Retry-After", "9"}}});
    auto x = to_server();
    auto failed = logged(x);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, kind::transient);
    EXPECT_EQ(failed.error().retry_after, std::chrono::seconds{9});
    EXPECT_FALSE(failed.error().suspect);
  }
}

TEST_F(mlflow_failures_test, suspects_a_batch_that_breaks_the_server) {
  set("log-batch", {.status = 500, .body = "<html>oops</html>"});
  auto x = to_server();
  auto failed = logged(x);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_TRUE(failed.error().suspect);
  EXPECT_THAT(failed.error().reason.message, HasSubstr("oops"));
}

TEST_F(mlflow_failures_test, treats_refused_values_as_rejected) {
  set(
    "runs/get",
    {.body = R"({"run":{"info":{"run_id":"r1","lifecycle_stage":"active"}}})"});
  for (auto reply : {loopback_reply{.status = 400,
                    .body = R"({"error_code":"INVALID_PARAMETER_VALUE"})"},
                     loopback_reply{.status = 404,
                     .body = R"({"error_code":"RESOURCE_DOES_NOT_EXIST"})"}}) {
    set("log-batch", reply);
    auto x = to_server();
    auto failed = logged(x);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, kind::rejected) << reply.status;
  }
}

// As Traefik, ngrok and others do while a container restarts.
TEST_F(mlflow_failures_test, waits_for_a_server_whose_gateway_answers_404) {
  const loopback_reply none{.status = 404, .body = "404 page not found"};
  set("log-batch", none);
  auto x = to_server();
  auto failed = logged(x);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_TRUE(failed.error().suspect);
  for (auto call : {"experiments/get-by-name", "runs/search", "runs/create"}) {
    set(call, none);
    auto next = to_server();
    failed = next.start(run, "");
    ASSERT_FALSE(failed) << call;
    EXPECT_EQ(failed.error().what, kind::transient) << call;
    EXPECT_THAT(failed.error().reason.message,
                HasSubstr("MLFLOW_TRACKING_URI"));
    set(call, call == std::string_view{"runs/create"}
                ? loopback_reply{.body = created()}
                : loopback_reply{.body = R"({"experiment":)"
                                         R"({"experiment_id":"1"}})"});
  }
}

TEST_F(mlflow_failures_test, repeats_nothing_by_itself_and_loses_nothing) {
  for (auto fault :
       {reply_fault::close, reply_fault::reset, reply_fault::truncated}) {
    set("log-batch", {.fault = fault});
    auto x = to_server();
    auto failed = logged(x);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, kind::transient);
    EXPECT_EQ(failed.error().accepted, 0u);
  }
}

TEST_F(mlflow_failures_test, says_how_many_records_were_accepted) {
  std::atomic<int> batches = 0;
  loopback_server breaking{[&](const loopback_request& x) {
    if (x.target.find("log-batch") != x.target.npos && ++batches == 3)
      return loopback_reply{.status = 503};
    return answer(x);
  }};
  mlflow_sink x{{.tracking_uri = breaking.url()}};
  auto failed = logged(x, 3500);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().accepted, 2000u);
  EXPECT_EQ(batches, 3);
}

TEST_F(mlflow_failures_test, does_not_count_tags_as_records) {
  std::atomic<int> batches = 0;
  loopback_server breaking{[&](const loopback_request& x) {
    if (x.target.find("log-batch") != x.target.npos && ++batches == 2)
      return loopback_reply{.status = 503};
    return answer(x);
  }};
  mlflow_sink x{{.tracking_uri = breaking.url()}};
  ASSERT_TRUE(x.start(run, ""));
  metrics texts;
  for (int i = 0; i < 150; ++i)
    texts["text" + std::to_string(i)] = "x";
  std::vector<tracker_record> records(200);
  for (std::size_t i = 0; i < records.size(); ++i)
    records[i].content = journaled_batch{.index = i, .values = {texts}};
  auto failed = x.log(records);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().accepted, 0u);
  EXPECT_EQ(batches, 2);
}

TEST_F(mlflow_failures_test, stops_when_the_run_is_cancelled) {
  std::stop_source source;
  run.cancelled = source.get_token();
  set("log-batch", {.fault = reply_fault::hang});
  std::jthread canceller{[&] {
    server.wait_for(4);
    source.request_stop();
  }};
  auto x = to_server();
  auto failed = logged(x);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().reason.code, ec::stopped);
}

TEST_F(mlflow_failures_test, recognizes_a_server_that_is_not_mlflow) {
  for (auto [body, what] : {std::pair{"<html>Log in</html>", kind::transient},
                            {"[1]", kind::transient},
                            {"", kind::transient},
                            {"{}", kind::permanent}}) {
    set("experiments/get-by-name", {.body = body});
    auto x = to_server();
    auto failed = x.start(run, "");
    ASSERT_FALSE(failed) << body;
    EXPECT_EQ(failed.error().what, what) << body;
    EXPECT_THAT(failed.error().reason.message,
                HasSubstr("MLFLOW_TRACKING_URI"));
  }
}

// A proxy that wants a login answers every call with a page.
TEST_F(mlflow_failures_test, believes_no_page_that_records_were_taken) {
  set("log-batch", {.body = "<html>Log in</html>"});
  auto x = to_server();
  auto failed = logged(x);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_EQ(failed.error().accepted, 0u);
  set("log-batch", {});
  set("runs/update", {.body = "<html>Sorry</html>"});
  ASSERT_TRUE(logged(x));
  EXPECT_FALSE(x.finish(run_status_kind::finished, begin));
}

TEST_F(mlflow_failures_test, says_how_to_allow_other_host_names) {
  set("experiments/get-by-name",
      {.status = 403,
       .body = "Invalid Host header - possible DNS rebinding attack detected"});
  auto x = to_server();
  auto failed = x.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_THAT(failed.error().reason.message, HasSubstr("--allowed-hosts"));
}

TEST_F(mlflow_failures_test, refuses_artifacts_that_only_the_server_can_write) {
  set("runs/create", {.body = created("s3://bucket/1/r1/artifacts")});
  auto x = to_server();
  ASSERT_TRUE(x.start(run, ""));
  std::vector<tracker_record> records(1);
  records[0].content = logged_text{1, "t", "text"};
  auto failed = x.log(records);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::rejected);
  EXPECT_THAT(failed.error().reason.message, HasSubstr("--serve-artifacts"));
}

// A proxy may forbid PUT, or give up on long uploads.
TEST_F(mlflow_failures_test, suspects_an_artifact_if_other_calls_succeed) {
  std::vector<tracker_record> records(1);
  records[0].content = logged_text{1, "t", "text"};
  for (int status : {401, 403, 503, 504}) {
    set("mlflow-artifacts/artifacts", {.status = status});
    set("runs/get", {});
    auto x = to_server();
    ASSERT_TRUE(x.start(run, ""));
    auto failed = x.log(records);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, kind::transient) << status;
    EXPECT_TRUE(failed.error().suspect) << status;
    EXPECT_EQ(failed.error().reason.code, ec::storage) << status;
    set("runs/get", {.status = status}); // The same for everything.
    failed = x.log(records);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().reason.code, ec::protocol) << status;
    EXPECT_EQ(failed.error().what,
              status < 500 ? kind::permanent : kind::transient);
    EXPECT_FALSE(failed.error().suspect) << status;
  }
}

TEST_F(mlflow_failures_test, shows_no_secret_from_a_file) {
  mlflow_settings settings{.server = server.url()};
  settings.http.token = "planted-in-a-file";
  set("experiments/get-by-name",
      {.status = 401, .body = "token planted-in-a-file is not known"});
  mlflow_server store{settings, {}};
  auto failed = store.open({.experiment = "e", .uid = "u"}, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_EQ(failed.error().reason.message.find("planted"), std::string::npos);
  EXPECT_THAT(failed.error().reason.message, HasSubstr("is not known"));
}

} // namespace
} // namespace troupe::internal::test
