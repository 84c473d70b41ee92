#include "troupe/callbacks/mlflow/mlflow_settings.hpp"

#include <cstdlib>

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/support/child.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

/// An environment without any of MLflow's variables and with a scratch home.
class mlflow_settings_test : public testing::Test {
protected:
  mlflow_settings_test() {
    for (const auto* name :
         {"MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME",
          "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN",
          "MLFLOW_TRACKING_INSECURE_TLS", "MLFLOW_TRACKING_SERVER_CERT_PATH",
          "MLFLOW_TRACKING_CLIENT_CERT_PATH", "MLFLOW_WORKSPACE", "MLFLOW_TAGS",
          "MLFLOW_HTTP_REQUEST_TIMEOUT", "DATABRICKS_HOST", "DATABRICKS_TOKEN",
          "DATABRICKS_CLIENT_ID", "DATABRICKS_CLIENT_SECRET",
          "DATABRICKS_CONFIG_FILE", "DATABRICKS_CONFIG_PROFILE"})
      set(name, nullptr);
    set("HOME", home.path().c_str());
  }

  ~mlflow_settings_test() override {
    for (const auto& [name, value] : before)
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
  }

  void set(const char* name, const char* value) {
    if (!before.contains(name)) {
      const auto* old = std::getenv(name);
      before[name] = old ? std::optional<std::string>{old} : std::nullopt;
    }
    if (value)
      ::setenv(name, value, 1);
    else
      ::unsetenv(name);
  }

  static mlflow_settings resolved(const mlflow_options& options = {}) {
    auto result = resolve_mlflow(options, "/storage/run");
    EXPECT_TRUE(result) << result.error().message;
    return result.value_or(mlflow_settings{});
  }

  static std::string refused(const mlflow_options& options = {}) {
    auto result = resolve_mlflow(options, "/storage/run");
    return result ? "" : result.error().message;
  }

  temporary_folder home;
  std::map<std::string, std::optional<std::string>> before;
};

TEST_F(mlflow_settings_test, keeps_files_beside_the_run_by_default) {
  EXPECT_EQ(resolved().tree, "/storage/mlruns");
}

TEST_F(mlflow_settings_test, prefers_the_option_to_the_variable) {
  set("MLFLOW_TRACKING_URI", "http://variable:1/");
  EXPECT_EQ(resolved().server, "http://variable:1");
  EXPECT_EQ(resolved({.tracking_uri = "https://option/mlflow"}).server,
            "https://option/mlflow");
}

TEST_F(mlflow_settings_test, accepts_every_form_of_a_folder) {
  EXPECT_EQ(resolved({.tracking_uri = "/a/mlruns"}).tree, "/a/mlruns");
  EXPECT_EQ(resolved({.tracking_uri = "file:///a%20b/c"}).tree, "/a b/c");
  EXPECT_EQ(resolved({.tracking_uri = "file:/a"}).tree, "/a");
  EXPECT_EQ(resolved({.tracking_uri = "file://localhost/a"}).tree, "/a");
  EXPECT_EQ(resolved({.tracking_uri = "file:a/mlruns"}).tree,
            fs::absolute("a/mlruns"));
  EXPECT_THAT(refused({.tracking_uri = "file://host/a"}),
              HasSubstr("names a host"));
}

TEST_F(mlflow_settings_test, refuses_databases) {
  for (const auto* uri : {"sqlite:///m.db", "postgresql://u:p@host/db"}) {
    auto text = refused({.tracking_uri = uri});
    EXPECT_THAT(text, HasSubstr("mlflow server --backend-store-uri"));
    EXPECT_EQ(text.find("u:p"), text.npos);
  }
}

TEST_F(mlflow_settings_test, finds_credentials_where_mlflow_does) {
  set("MLFLOW_TRACKING_URI", "http://host");
  set("MLFLOW_TRACKING_TOKEN", "t");
  EXPECT_EQ(resolved().http.token, "t");
  EXPECT_EQ(resolved().http.user, "");
  fs::create_directories(home / ".mlflow");
  write_bytes(home / ".mlflow/credentials",
              "# mine\n[other]\nmlflow_tracking_username = no\n[mlflow]\n"
              "mlflow_tracking_username = u\nmlflow_tracking_password=p=q\n");
  EXPECT_EQ(resolved().http.user, "u");
  EXPECT_EQ(resolved().http.password, "p=q");
  if (::geteuid() == 0) {
    EXPECT_TRUE(holds_without_home(home.path(),
                                   [] { return resolved().http.user.empty(); }))
      << "the current folder's";
  }
  set("MLFLOW_TRACKING_USERNAME", "v");
  set("MLFLOW_TRACKING_PASSWORD", "w");
  EXPECT_EQ(resolved().http.user, "v");
  EXPECT_EQ(resolved().http.password, "w");
}

TEST_F(mlflow_settings_test, reads_tls_timeout_and_workspace) {
  set("MLFLOW_TRACKING_URI", "https://host");
  EXPECT_EQ(resolved().timeout, std::chrono::seconds{120});
  set("MLFLOW_HTTP_REQUEST_TIMEOUT", "7");
  set("MLFLOW_TRACKING_INSECURE_TLS", "true");
  set("MLFLOW_TRACKING_SERVER_CERT_PATH", "/ca");
  set("MLFLOW_TRACKING_CLIENT_CERT_PATH", "/own");
  set("MLFLOW_WORKSPACE", "w");
  auto x = resolved();
  EXPECT_EQ(x.timeout, std::chrono::seconds{7});
  EXPECT_TRUE(x.http.insecure_tls);
  EXPECT_EQ(x.http.ca_file, "/ca");
  EXPECT_EQ(x.http.client_certificate, "/own");
  EXPECT_EQ(x.workspace, "w");
}

TEST_F(mlflow_settings_test, names_the_missing_credentials_of_databricks) {
  auto text = refused({.tracking_uri = "databricks"});
  EXPECT_THAT(text, HasSubstr("DATABRICKS_HOST"));
  EXPECT_THAT(text, HasSubstr("DATABRICKS_TOKEN"));
  EXPECT_THAT(text, HasSubstr((home / ".databrickscfg").string()
                              + ", which does not exist"));
  set("DATABRICKS_HOST", "https://host");
  EXPECT_NE(refused({.tracking_uri = "databricks"}), "");
}

TEST_F(mlflow_settings_test, finds_databricks_in_the_environment) {
  set("MLFLOW_TRACKING_URI", "databricks");
  set("DATABRICKS_HOST", "host.example/");
  set("DATABRICKS_TOKEN", "t");
  auto x = resolved();
  EXPECT_TRUE(x.databricks);
  EXPECT_EQ(x.server, "https://host.example");
  EXPECT_EQ(x.http.token, "t");
  set("DATABRICKS_TOKEN", nullptr);
  set("DATABRICKS_CLIENT_ID", "i");
  set("DATABRICKS_CLIENT_SECRET", "s");
  EXPECT_EQ(resolved().client_id, "i");
  EXPECT_EQ(resolved().client_secret, "s");
}

TEST_F(mlflow_settings_test, finds_databricks_in_a_config_file) {
  const std::string text =
    "[DEFAULT]\nhost = https://one\ntoken = 1\n"
    "[team]\nhost = https://two\nclient_id = i\nclient_secret = s\n";
  write_bytes(home / ".databrickscfg", text);
  EXPECT_EQ(resolved({.tracking_uri = "databricks"}).server, "https://one");
  auto team = resolved({.tracking_uri = "databricks://team"});
  EXPECT_EQ(team.server, "https://two");
  EXPECT_EQ(team.http.token, "");
  EXPECT_EQ(team.client_secret, "s");
  set("DATABRICKS_CONFIG_PROFILE", "team");
  EXPECT_EQ(resolved({.tracking_uri = "databricks"}).server, "https://two");
  EXPECT_NE(refused({.tracking_uri = "databricks://none"}), "");
  fs::rename(home / ".databrickscfg", home / "moved");
  EXPECT_NE(refused({.tracking_uri = "databricks"}), "");
  set("DATABRICKS_CONFIG_FILE", (home / "moved").c_str());
  EXPECT_EQ(resolved({.tracking_uri = "databricks"}).server, "https://two");
  EXPECT_EQ(resolved({.tracking_uri = "databricks://DEFAULT"}).server,
            "https://one");
}

TEST_F(mlflow_settings_test, checks_what_can_be_checked_without_a_network) {
  tracked_run run;
  run.path = "/storage/run";
  EXPECT_TRUE(mlflow_sink{}.check(run));
  set("MLFLOW_TAGS", "a=b");
  EXPECT_THAT(mlflow_sink{}.check(run).error().message,
              HasSubstr("MLFLOW_TAGS"));
  set("MLFLOW_TAGS", R"({"a": "b"})");
  EXPECT_TRUE(mlflow_sink{}.check(run));
  set("DATABRICKS_HOST", "https://host");
  set("DATABRICKS_TOKEN", "t");
  mlflow_options options{.tracking_uri = "databricks", .experiment = "mine"};
  EXPECT_THAT(mlflow_sink{options}.check(run).error().message,
              HasSubstr("/Shared/mine"));
  options.experiment = "/Shared/mine";
  EXPECT_TRUE(mlflow_sink{options}.check(run));
}

TEST_F(mlflow_settings_test, passes_options_on_without_secrets) {
  set("MLFLOW_TRACKING_URI", "https://me:planted@host/x");
  set("MLFLOW_TRACKING_PASSWORD", "planted");
  set("MLFLOW_TRACKING_TOKEN", "planted");
  mlflow_sink sink{{.experiment = "e",
                    .tags = {{"a", "b"}},
                    .ranks = rank_values::mean,
                    .upload_checkpoints = true}};
  auto options = sink.options();
  EXPECT_EQ(options.find("planted"), options.npos);
  EXPECT_THAT(options, HasSubstr("https://host/x"));
  set("MLFLOW_TRACKING_URI", nullptr);
  EXPECT_EQ(sink_from_json<mlflow_sink>(options)->options(), options);
  // A process with the same variable gets the user back.
  set("MLFLOW_TRACKING_URI", "https://me:planted@host/x");
  EXPECT_EQ(resolved({.tracking_uri = "https://host/x"}).server,
            "https://me:planted@host/x");
  EXPECT_ANY_THROW(sink_from_json<mlflow_sink>("{"));
  EXPECT_ANY_THROW(sink_from_json<mlflow_sink>(R"({"ranks": "none"})"));
}

TEST_F(mlflow_settings_test, refuses_a_relative_tree_without_a_current_folder) {
  EXPECT_TRUE(holds_without_current_folder([] {
    auto relative = resolve_mlflow({.tracking_uri = "mlruns"}, "/runs/r");
    auto absolute = resolve_mlflow({.tracking_uri = "/mlruns"}, "/runs/r");
    return !relative && relative.error().code == ec::storage && absolute
           && absolute->tree == "/mlruns";
  }));
}

TEST_F(mlflow_settings_test, refuses_an_address_that_is_not_of_a_server) {
  for (auto text : {"localhost:5000", "10.0.0.1:80/mlflow", "[::1]:5000"}) {
    auto said = refused({.tracking_uri = text});
    EXPECT_THAT(said, HasSubstr(std::string{"write http://"} + text));
    EXPECT_THAT(said, HasSubstr("MLFLOW_TRACKING_URI"));
  }
  auto said = refused({.tracking_uri = "me:planted@host:5000"});
  EXPECT_THAT(said, HasSubstr("write http://host:5000"));
  EXPECT_EQ(said.find("planted"), said.npos);
  EXPECT_EQ(resolved({.tracking_uri = "./localhost:5000"}).tree,
            fs::current_path() / "localhost:5000");
  for (auto text : {"http://", "https:///path", "http://:5000", "http://u:p@"})
    EXPECT_THAT(refused({.tracking_uri = text}), HasSubstr("names no host"));
  EXPECT_THAT(refused({.tracking_uri = "http://host:five"}),
              HasSubstr("has a port"));
  EXPECT_THAT(refused({.tracking_uri = "http://host\n"}),
              HasSubstr("control character"));
  EXPECT_EQ(resolved({.tracking_uri = "HTTP://Host:5000/"}).server,
            "http://Host:5000");
  EXPECT_EQ(resolved({.tracking_uri = "http://[::1]:5000"}).server,
            "http://[::1]:5000");
}

TEST_F(mlflow_settings_test, makes_no_folder_of_a_mistyped_scheme) {
  for (auto text : {"http:/localhost:1", "https:host", "http:", "foo:bar",
                    "databricks:profile", "File:/a/mlruns"})
    EXPECT_THAT(refused({.tracking_uri = text}),
                HasSubstr("begins with http:// or https://"))
      << text;
  EXPECT_EQ(resolved({.tracking_uri = "a/foo:bar"}).tree,
            fs::current_path() / "a/foo:bar");
}

TEST_F(mlflow_settings_test, finds_the_users_home) {
  EXPECT_EQ(resolved({.tracking_uri = "~/mlruns"}).tree, home / "mlruns");
  EXPECT_EQ(resolved({.tracking_uri = "~"}).tree, home.path());
  set("HOME", "");
  auto tree = resolved({.tracking_uri = "~/mlruns"}).tree;
  EXPECT_TRUE(tree.is_absolute());
  EXPECT_NE(tree, fs::current_path() / "~/mlruns");
}

TEST_F(mlflow_settings_test, refuses_a_credential_with_a_line_break) {
  set("MLFLOW_TRACKING_URI", "http://host");
  set("MLFLOW_TRACKING_TOKEN", "planted\n");
  auto said = refused();
  EXPECT_THAT(said, HasSubstr("MLFLOW_TRACKING_TOKEN has a control"));
  EXPECT_EQ(said.find("planted"), said.npos);
}

} // namespace
} // namespace troupe::internal::test
