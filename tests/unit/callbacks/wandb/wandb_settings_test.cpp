#include "troupe/callbacks/wandb/wandb_settings.hpp"

#include <optional>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/child.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"

namespace troupe::internal {
namespace {

using test::environment_guard;
using test::run_in;
using test::temporary_folder;
using test::write_bytes;

/// Sets the variables of a login, so that keys are only looked for below
/// *home*, for the server at *url* or, without one, for that of W&B.
environment_guard look_below(const fs::path& home,
                             const std::string& url = {}) {
  return environment_guard{{{"HOME", home.string()},
                            {"NETRC", ""},
                            {"WANDB_API_KEY", ""},
                            {"WANDB_IDENTITY_TOKEN_FILE", ""},
                            {"WANDB_CONFIG_DIR", ""},
                            {"WANDB_BASE_URL", url}}};
}

TEST(wandb_settings_test, has_defaults_for_everything) {
  auto x = make_wandb_settings({}, run_in("/runs/digits"));
  ASSERT_TRUE(x);
  EXPECT_EQ(x->mode, wandb_mode::online);
  EXPECT_EQ(x->root, fs::path{"/runs/digits/wandb"});
  EXPECT_EQ(x->about.id, "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(x->about.project, "uncategorized");
  EXPECT_EQ(x->about.name, "digits");
  EXPECT_EQ(x->about.host, "here");
  EXPECT_EQ(x->about.config.front().key, "lr");
}

TEST(wandb_settings_test, prefers_options_then_the_loop_then_variables) {
  environment_guard guard{{{"WANDB_PROJECT", "v-project"},
                           {"WANDB_ENTITY", "v-entity"},
                           {"WANDB_NAME", "v-name"},
                           {"WANDB_RUN_GROUP", "v-group"},
                           {"WANDB_JOB_TYPE", "v-type"},
                           {"WANDB_NOTES", "v-notes"},
                           {"WANDB_TAGS", "a,b"},
                           {"WANDB_RUN_ID", "v-id"},
                           {"WANDB_DIR", "/v"},
                           {"WANDB_MODE", "offline"}}};
  auto run = run_in("/runs/digits");
  auto x = make_wandb_settings({}, run).value();
  EXPECT_EQ(x.mode, wandb_mode::offline);
  EXPECT_EQ(x.root, fs::path{"/v/wandb"});
  EXPECT_EQ(x.about.id, "v-id");
  EXPECT_EQ(x.about.project, "v-project");
  EXPECT_EQ(x.about.entity, "v-entity");
  EXPECT_EQ(x.about.name, "v-name");
  EXPECT_EQ(x.about.group, "v-group");
  EXPECT_EQ(x.about.job_type, "v-type");
  EXPECT_EQ(x.about.notes, "v-notes");
  EXPECT_EQ(x.about.tags, (std::vector<std::string>{"a", "b"}));
  run.project = "l-project";
  run.display_name = "l-name";
  x = make_wandb_settings({}, run).value();
  EXPECT_EQ(x.about.project, "l-project");
  EXPECT_EQ(x.about.name, "l-name");
  wandb_options options;
  options.project = "o-project";
  options.name = "o-name";
  options.run_id = "o-id";
  options.dir = "/o";
  options.tags = {"c"};
  options.mode = wandb_mode::disabled;
  x = make_wandb_settings(options, run).value();
  EXPECT_EQ(x.about.project, "o-project");
  EXPECT_EQ(x.about.name, "o-name");
  EXPECT_EQ(x.about.id, "o-id");
  EXPECT_EQ(x.about.tags, std::vector<std::string>{"c"});
  EXPECT_EQ(x.root, fs::path{"/o/wandb"});
  EXPECT_EQ(x.mode, wandb_mode::disabled);
}

TEST(wandb_settings_test, puts_trials_into_the_group_of_their_sweep) {
  environment_guard guard{{{"WANDB_RUN_ID", "v-id"}}};
  auto run = run_in("/runs/search/trial-0000");
  run.sweep = tracked_sweep{"search", "/runs/search", "s", {}};
  auto x = make_wandb_settings({}, run).value();
  EXPECT_EQ(x.about.group, "search");
  EXPECT_EQ(x.about.job_type, "trial");
  EXPECT_EQ(x.about.id, run.id) << "each its own";
  x = make_wandb_settings({.group = "mine", .job_type = "train"}, run).value();
  EXPECT_EQ(x.about.group, "mine");
  EXPECT_EQ(x.about.job_type, "train");
}

TEST(wandb_settings_test, refuses_what_wandb_does_not_accept_and_names_it) {
  auto run = run_in("/runs/digits");
  {
    environment_guard guard{{{"WANDB_MODE", "shared"}}};
    auto x = make_wandb_settings({}, run);
    ASSERT_FALSE(x);
    EXPECT_EQ(x.error().code, ec::invalid_config);
    EXPECT_NE(x.error().message.find("WANDB_MODE"), std::string::npos);
  }
  wandb_options options;
  options.project = "a/b";
  auto x = make_wandb_settings(options, run);
  ASSERT_FALSE(x);
  EXPECT_NE(x.error().message.find("WANDB_PROJECT"), std::string::npos);
  options.project = "a";
  options.run_id = std::string(65, 'x');
  x = make_wandb_settings(options, run);
  ASSERT_FALSE(x);
  EXPECT_NE(x.error().message.find("WANDB_RUN_ID"), std::string::npos);
}

TEST(wandb_settings_test, finds_a_key_where_wandb_does) {
  temporary_folder home;
  auto guard = look_below(home.path(), "https://wandb.example:8080");
  EXPECT_FALSE(has_wandb_key({}));
  write_bytes(home / ".netrc", "machine api.wandb.ai\n  login user\n"
                               "  password x\n");
  EXPECT_FALSE(has_wandb_key({})) << "another host's";
  write_bytes(home / ".netrc", "machine api.wandb.ai login user password x\n"
                               "machine wandb.example login u password y\n");
  EXPECT_TRUE(has_wandb_key({}));
  if (::geteuid() == 0) {
    EXPECT_TRUE(
      test::holds_without_home(home.path(), [] { return !has_wandb_key({}); }))
      << "the current folder's";
  }
  fs::remove(home / ".netrc");
  wandb_options options;
  options.api_key = "x";
  EXPECT_TRUE(has_wandb_key(options));
  environment_guard key{{{"WANDB_API_KEY", "x"}}};
  EXPECT_TRUE(has_wandb_key({}));
}

// As `wandb login --host=https://wandb.corp` leaves them.
TEST(wandb_settings_test, finds_what_a_login_has_saved) {
  temporary_folder home;
  auto guard = look_below(home.path());
  auto settings = home / ".config/wandb/settings";
  fs::create_directories(settings.parent_path());
  write_bytes(home / ".netrc", "machine wandb.corp login user password x\n");
  EXPECT_FALSE(has_wandb_key({})) << "another host's";
  write_bytes(settings, "[default]\nbase_url = https://wandb.corp\n");
  EXPECT_TRUE(has_wandb_key({}));
  write_bytes(settings, "[default]\napi_key = x\n");
  EXPECT_TRUE(has_wandb_key({}));
  fs::create_directory(home / "elsewhere");
  environment_guard moved{
    {{"WANDB_CONFIG_DIR", (home / "elsewhere").string()}}};
  EXPECT_FALSE(has_wandb_key({}));
  fs::copy_file(settings, home / "elsewhere/settings");
  EXPECT_TRUE(has_wandb_key({}));
}

TEST(wandb_settings_test, survives_json_except_for_the_key) {
  wandb_options x;
  x.project = "p";
  x.tags = {"a", "b\xff"};
  x.dir = "/somewhere";
  x.mode = wandb_mode::offline;
  x.api_key = "planted-secret";
  x.finish_timeout = std::chrono::seconds{7};
  x.ranks = rank_values::mean;
  x.non_finite = non_finite::skip;
  x.console = false;
  auto text = options_json(x);
  EXPECT_EQ(text.find("planted-secret"), std::string::npos);
  auto y = read_options<wandb_options>(text);
  EXPECT_EQ(options_json(y), text);
  EXPECT_EQ(y.mode, wandb_mode::offline);
  EXPECT_EQ(y.finish_timeout, std::chrono::seconds{7});
  EXPECT_FALSE(y.console);
  EXPECT_EQ(y.api_key, "");
  EXPECT_EQ(read_options<wandb_options>("{}").mode, std::nullopt);
  EXPECT_THROW(read_options<wandb_options>(R"({"mode":"shared"})"),
               std::invalid_argument);
}

TEST(wandb_settings_test, refuses_a_relative_folder_without_a_current_folder) {
  EXPECT_TRUE(test::holds_without_current_folder([] {
    auto run = run_in("/runs/digits");
    auto relative = make_wandb_settings({.dir = "here"}, run);
    auto absolute = make_wandb_settings({.dir = "/there"}, run);
    return !relative && relative.error().code == ec::storage && absolute;
  }));
}

TEST(wandb_settings_test, refuses_a_service_and_a_key_that_cannot_be_used) {
  temporary_folder home;
  environment_guard guard{{{"HOME", home.path().string()},
                           {"WANDB_MODE", ""},
                           {"WANDB_DIR", "~/runs"},
                           {"WANDB_API_KEY", "key\n"},
                           {"WANDB_BASE_URL", "wandb.example:8080"}}};
  auto refused = [] {
    auto x = make_wandb_settings({}, run_in("/runs/digits"));
    return x ? "" : x.error().message;
  };
  EXPECT_NE(refused().find("WANDB_BASE_URL"), std::string::npos);
  {
    environment_guard good{{{"WANDB_BASE_URL", "http://wandb.example:8080"}}};
    EXPECT_NE(refused().find("WANDB_API_KEY"), std::string::npos);
  }
  wandb_options options;
  options.mode = wandb_mode::offline; // It needs neither.
  auto x = make_wandb_settings(options, run_in("/runs/digits"));
  ASSERT_TRUE(x) << x.error().message;
  EXPECT_EQ(x->root, home / "runs/wandb");
}

} // namespace
} // namespace troupe::internal
