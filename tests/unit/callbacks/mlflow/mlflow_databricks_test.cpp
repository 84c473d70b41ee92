// The server of Databricks: its logins, paths and artifacts.

#include <atomic>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "tests/unit/callbacks/mlflow/mlflow_server_fixture.hpp"
#include "troupe/callbacks/mlflow/mlflow_server.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

class databricks_test : public mlflow_failures_test {
protected:
  databricks_test() {
    settings.server = server.url();
    settings.databricks = true;
    settings.client_id = "id";
    settings.client_secret = "planted";
  }

  /// Uploads a file to the URL that the server signs for it. *more* follows
  /// that URL in the server's answer.
  sink_result put_signed(const std::string& more = {}) {
    settings.http.token = "t";
    set("runs/create",
        {.body = created("dbfs:/databricks/mlflow-tracking/1/r1/artifacts")});
    set("credentials-for-write",
        {.body = R"({"credential_infos":[{"signed_uri":")" + server.url()
                 + R"(/blob?sig=s")" + more + "}]}"});
    mlflow_server store{settings, {}};
    EXPECT_TRUE(store.open(wanted, ""));
    write_bytes(folder / "f", "bytes");
    return store.put_file(folder / "f", "a/b.txt");
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
  ASSERT_TRUE(put_signed(R"(,"type":"AZURE_SAS_URI",)"
                         R"("headers":[{"name":"x-extra","value":"1"}])"));
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
  set("/blob", {.status = 403});
  auto failed = put_signed();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_TRUE(failed.error().suspect);
}

} // namespace
} // namespace troupe::internal::test
