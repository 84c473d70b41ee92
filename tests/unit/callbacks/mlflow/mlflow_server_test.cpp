#include "troupe/callbacks/mlflow/mlflow_server.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>

#include "tests/support/http_get.hpp"
#include "tests/support/loopback_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;
using kind = sink_failure::kind;

constexpr auto begin =
  std::chrono::system_clock::time_point{std::chrono::seconds{1'700'000'000}};

/// A server that answers MLflow's requests as a test wants. (Real servers are
/// tested in tests/peers/.)
class mlflow_failures_test : public testing::Test {
protected:
  mlflow_failures_test() {
    run.name = "run";
    run.path = folder / "run";
    fs::create_directories(run.path / "sinks");
    run.id = std::string(32, 'a');
    run.experiment = "/Shared/e";
    run.start_time = begin;
    set(
      "experiments/get-by-name",
      {.body =
         R"({"experiment":{"experiment_id":"1","lifecycle_stage":"active"}})"});
    set("runs/create", {.body = created()});
  }

  static std::string
  created(const std::string& artifacts = "mlflow-artifacts:/1/r1/artifacts") {
    return R"({"run":{"info":{"run_id":"r1","artifact_uri":")" + artifacts
           + R"("}}})";
  }

  loopback_reply answer(const loopback_request& x) {
    if (on_request)
      on_request(x);
    std::lock_guard guard{mutex};
    for (const auto& [part, reply] : answers)
      if (x.target.find(part) != x.target.npos)
        return reply;
    return {};
  }

  mlflow_sink to_server() {
    return mlflow_sink{{.tracking_uri = server.url()}};
  }

  /// The result of `log` with *count* reports of one value each, after a start.
  sink_result logged(mlflow_sink& x, std::size_t count = 1) {
    if (auto ok = x.start(run, ""); !ok)
      return ok;
    std::vector<tracker_record> records(count);
    for (std::size_t i = 0; i < count; ++i) {
      records[i].time = begin + std::chrono::seconds{i};
      records[i].content =
        journaled_batch{.index = i, .values = {metrics{{"loss", 1}}}};
    }
    return x.log(records);
  }

  std::vector<std::string> targets() {
    std::vector<std::string> result;
    for (const auto& x : server.requests()) {
      auto path = x.target.substr(0, x.target.find('?'));
      result.push_back(path.substr(path.find("mlflow/") + 7));
    }
    return result;
  }

  /// Sets the answer to each request whose target contains *part*.
  void set(const std::string& part, loopback_reply reply) {
    std::lock_guard guard{mutex};
    answers[part] = std::move(reply);
  }

  temporary_folder folder;
  tracked_run run;
  std::mutex mutex;
  std::map<std::string, loopback_reply> answers;
  std::function<void(const loopback_request&)> on_request;
  loopback_server server{[this](const auto& x) { return answer(x); }};
};

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

class databricks_test : public mlflow_failures_test {
protected:
  databricks_test() {
    settings.server = server.url();
    settings.databricks = true;
    settings.client_id = "id";
    settings.client_secret = "planted";
  }

  mlflow_settings settings;
  mlflow_run wanted{.experiment = "/Shared/e", .uid = "u"};
};

TEST_F(databricks_test, fetches_a_token_once_and_again_before_it_ends) {
  for (auto [seconds, fetched] : {std::pair{"3600", 1}, {"60", 3}}) {
    set("oidc/v1/token",
        {.body = std::string{R"({"access_token":"abc","expires_in":)"} + seconds
                 + "}"});
    auto before = server.requests().size();
    mlflow_server store{settings, {}};
    ASSERT_TRUE(store.open(wanted, ""));
    auto count = 0;
    auto requests = server.requests();
    for (auto i = before; i < requests.size(); ++i) {
      const auto& x = requests[i];
      if (x.target != "/oidc/v1/token") {
        EXPECT_EQ(x.headers.at("authorization"), "Bearer abc");
        continue;
      }
      ++count;
      EXPECT_EQ(x.headers.at("authorization"), "Basic aWQ6cGxhbnRlZA==");
      EXPECT_EQ(x.headers.at("content-type"),
                "application/x-www-form-urlencoded");
      EXPECT_EQ(x.body, "grant_type=client_credentials&scope=all-apis");
    }
    EXPECT_EQ(count, fetched) << seconds;
  }
}

// It may be revoked, or have expired while the host slept.
TEST_F(databricks_test, fetches_another_token_if_one_is_refused) {
  set("oidc/v1/token", {.body = R"({"access_token":"abc","expires_in":3600})"});
  std::atomic<int> logins = 0;
  on_request = [&](const loopback_request& x) {
    if (x.target == "/oidc/v1/token" && ++logins == 2)
      set("log-batch", {});
  };
  mlflow_server store{settings, {}};
  ASSERT_TRUE(store.open(wanted, ""));
  set("log-batch", {.status = 401});
  const mlflow_metric point{"loss", 1, 2, 3};
  EXPECT_TRUE(store.log_metrics({&point, 1}));
  EXPECT_EQ(logins, 2);
  set("log-batch", {.status = 401});
  auto failed = store.log_metrics({&point, 1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_EQ(logins, 3);
}

TEST_F(databricks_test, reports_a_refused_login) {
  set("oidc/v1/token",
      {.status = 400,
       .body = R"({"error_description":"secret planted is wrong"})"});
  mlflow_server store{settings, {}};
  auto failed = store.open(wanted, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_THAT(failed.error().reason.message,
              HasSubstr("DATABRICKS_CLIENT_SECRET"));
  EXPECT_EQ(failed.error().reason.message.find("planted"), std::string::npos);
}

TEST_F(databricks_test, requires_an_absolute_path) {
  settings.http.token = "t";
  mlflow_server store{settings, {}};
  wanted.experiment = "mine";
  auto failed = store.open(wanted, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_THAT(failed.error().reason.message, HasSubstr("/Shared/"));
}

TEST_F(databricks_test, uploads_artifacts_to_a_signed_url) {
  settings.http.token = "t";
  set("runs/create",
      {.body = created("dbfs:/databricks/mlflow-tracking/1/r1/artifacts")});
  set("credentials-for-write",
      {.body = R"({"credential_infos":[{"signed_uri":")" + server.url()
               + R"(/blob?sig=s","type":"AZURE_SAS_URI",)"
                 R"("headers":[{"name":"x-extra","value":"1"}]}]})"});
  mlflow_server store{settings, {}};
  ASSERT_TRUE(store.open(wanted, ""));
  write_bytes(folder / "f", "bytes");
  ASSERT_TRUE(store.put_file(folder / "f", "a/b.txt"));
  auto requests = server.requests();
  const auto& question = requests.at(requests.size() - 2);
  EXPECT_THAT(question.body, HasSubstr("a/b.txt"));
  const auto& upload = requests.back();
  EXPECT_EQ(upload.method, "PUT");
  EXPECT_EQ(upload.target, "/blob?sig=s");
  EXPECT_EQ(upload.body, "bytes");
  EXPECT_EQ(upload.headers.at("x-extra"), "1");
  EXPECT_EQ(upload.headers.at("x-ms-blob-type"), "BlockBlob");
  EXPECT_FALSE(upload.headers.contains("authorization"));
}

// Its storage may be behind a firewall.
TEST_F(databricks_test, suspects_an_artifact_that_its_storage_refuses) {
  settings.http.token = "t";
  set("runs/create",
      {.body = created("dbfs:/databricks/mlflow-tracking/1/r1/artifacts")});
  set("credentials-for-write",
      {.body = R"({"credential_infos":[{"signed_uri":")" + server.url()
               + R"(/blob?sig=s"}]})"});
  set("/blob", {.status = 403});
  mlflow_server store{settings, {}};
  ASSERT_TRUE(store.open(wanted, ""));
  write_bytes(folder / "f", "bytes");
  auto failed = store.put_file(folder / "f", "a/b.txt");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_TRUE(failed.error().suspect);
}

} // namespace
} // namespace troupe::internal::test
