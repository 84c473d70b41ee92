#include "troupe/callbacks/comet/comet_settings.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/child.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/comet/comet_sink.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"

namespace troupe::internal {
namespace {

using test::environment_guard;
using test::run_in;
using test::temporary_folder;
using test::write_bytes;

class comet_settings_test : public testing::Test {
protected:
  temporary_folder home;
  environment_guard guard{{{"HOME", home.path().string()},
                           {"COMET_API_KEY", ""},
                           {"COMET_URL_OVERRIDE", ""}}};
  tracked_run run = run_in("/runs/digits");
};

TEST_F(comet_settings_test, is_offline_without_a_key) {
  auto x = make_comet_settings({}, run);
  ASSERT_TRUE(x);
  EXPECT_EQ(x->mode, comet_mode::offline);
  EXPECT_EQ(x->experiment_key, run.id);
  EXPECT_EQ(x->project, "general");
  EXPECT_EQ(x->offline_directory, fs::path{"/runs/digits/comet"});
  EXPECT_EQ(x->url, "https://www.comet.com");
}

TEST_F(comet_settings_test, saves_no_user_of_its_address) {
  constexpr auto url = "https://me:hunter2@comet.local:1";
  auto saved = options_json(comet_options{.url = url});
  EXPECT_EQ(saved.find("hunter2"), saved.npos) << saved;
  auto options = read_options<comet_options>(saved);
  EXPECT_EQ(options.url, "https://comet.local:1");
  EXPECT_EQ(make_comet_settings(options, run)->url, "https://comet.local:1");
  // A process with the same variable gets the user back.
  environment_guard more{{{"COMET_URL_OVERRIDE", url}}};
  EXPECT_EQ(make_comet_settings(options, run)->url, url);
}

TEST_F(comet_settings_test, reads_no_file_for_a_user_without_a_home) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can be a user whom the host does not know";
  write_bytes(home / ".comet.config", "[comet]\napi_key=not-yours\n");
  EXPECT_TRUE(test::holds_without_home(home.path(), [this] {
    auto x = make_comet_settings({}, run);
    return x && x->api_key.empty();
  }));
}

TEST_F(comet_settings_test, prefers_options_then_variables_then_the_file) {
  write_bytes(home / ".comet.config",
              "[other]\napi_key=wrong\n[comet]\napi_key = f-key\n"
              "workspace=f-space\nproject_name=f-project\n"
              "offline_directory=/f\n");
  auto x = make_comet_settings({}, run).value();
  EXPECT_EQ(x.mode, comet_mode::online);
  EXPECT_EQ(x.api_key, "f-key");
  EXPECT_EQ(x.workspace, "f-space");
  EXPECT_EQ(x.project, "f-project");
  EXPECT_EQ(x.offline_directory, fs::path{"/f"});
  environment_guard more{
    {{"COMET_API_KEY", "v-key"},
     {"COMET_WORKSPACE", "v-space"},
     {"COMET_PROJECT_NAME", "v-project"},
     {"COMET_EXPERIMENT_KEY", "0123456789012345678901234567890123456789"},
     {"COMET_OFFLINE_DIRECTORY", "/v"},
     {"COMET_URL_OVERRIDE", "https://comet.example/clientlib/"}}};
  x = make_comet_settings({}, run).value();
  EXPECT_EQ(x.api_key, "v-key");
  EXPECT_EQ(x.workspace, "v-space");
  EXPECT_EQ(x.project, "v-project");
  EXPECT_EQ(x.offline_directory, fs::path{"/v"});
  EXPECT_EQ(x.url, "https://comet.example");
  EXPECT_TRUE(x.is_known);
  comet_options options;
  options.api_key = "o-key";
  options.project = "o-project";
  options.mode = comet_mode::offline;
  x = make_comet_settings(options, run).value();
  EXPECT_EQ(x.api_key, "o-key");
  EXPECT_EQ(x.project, "o-project");
  EXPECT_EQ(x.mode, comet_mode::offline);
}

TEST_F(comet_settings_test, gives_each_trial_an_experiment_of_its_own) {
  environment_guard more{
    {{"COMET_EXPERIMENT_KEY", "0123456789012345678901234567890123456789"}}};
  run.sweep = tracked_sweep{"search", "/runs/search", "s", {}};
  auto x = make_comet_settings({}, run).value();
  EXPECT_EQ(x.experiment_key, run.id);
  EXPECT_FALSE(x.is_known);
}

TEST_F(comet_settings_test, names_the_variable_that_would_help) {
  comet_options options;
  options.mode = comet_mode::online;
  auto x = make_comet_settings(options, run);
  ASSERT_FALSE(x);
  EXPECT_EQ(x.error().code, ec::invalid_config);
  EXPECT_NE(x.error().message.find("COMET_API_KEY"), std::string::npos);
  EXPECT_NE(x.error().message.find((home / ".comet.config").string()),
            std::string::npos);
  options.mode = comet_mode::offline;
  options.experiment_key = "short";
  x = make_comet_settings(options, run);
  ASSERT_FALSE(x);
  EXPECT_NE(x.error().message.find("COMET_EXPERIMENT_KEY"), std::string::npos);
}

TEST_F(comet_settings_test, survives_json_except_for_the_key) {
  comet_options options;
  options.project = "p";
  options.mode = comet_mode::offline;
  options.api_key = "planted-secret";
  options.ranks = rank_values::each;
  comet_sink x{options};
  EXPECT_EQ(x.options().find("planted-secret"), std::string::npos);
  EXPECT_EQ(sink_from_json<comet_sink>(x.options())->options(), x.options());
  EXPECT_NE(x.options(), comet_sink{{}}.options());
  EXPECT_THROW(sink_from_json<comet_sink>(R"({"mode":"sideways"})"),
               std::invalid_argument);
}

TEST_F(comet_settings_test,
       refuses_a_relative_folder_without_a_current_folder) {
  EXPECT_TRUE(test::holds_without_current_folder([&] {
    auto relative = make_comet_settings({.offline_directory = "comet"}, run);
    auto absolute = make_comet_settings({.offline_directory = "/comet"}, run);
    return !relative && relative.error().code == ec::storage && absolute;
  }));
}

TEST_F(comet_settings_test, refuses_addresses_and_keys_that_cannot_be_used) {
  auto refused = [&](const comet_options& options) {
    auto x = make_comet_settings(options, run);
    return x ? "" : x.error().message;
  };
  EXPECT_NE(refused({.url = "www.comet.com"}).find("COMET_URL_OVERRIDE"),
            std::string::npos);
  EXPECT_NE(refused({.url = "https://:80"}).find("names no host"),
            std::string::npos);
  EXPECT_NE(refused({.api_key = "a\nb"}).find("COMET_API_KEY"),
            std::string::npos);
  auto x = make_comet_settings({.offline_directory = "~/comet"}, run);
  ASSERT_TRUE(x);
  EXPECT_EQ(x->offline_directory, home / "comet");
}

} // namespace
} // namespace troupe::internal
