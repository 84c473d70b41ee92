#include "troupe/callbacks/trackers/all_trackers.hpp"

#include <algorithm>

#include <gmock/gmock.h>

#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/callbacks/trackers/default_trackers.hpp"
#include "troupe/callbacks/tracking/sink_thread.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"

using namespace troupe;
using namespace troupe::internal;

TEST(make_sink_test, refuses_an_unknown_name) {
  auto none = make_sink("carrier_pigeon", "{}");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, testing::HasSubstr("carrier_pigeon"));
}

TEST(make_sink_test, makes_sinks_whose_rest_troupe_sync_sends) {
  for (auto name : {"comet", "csv", "mlflow", "prometheus", "report_page",
                    "result_json", "tensorboard", "wandb"}) {
    EXPECT_TRUE(has_tracker(name)) << name;
    auto made = make_sink(name, "{}");
    ASSERT_TRUE(made) << name;
    EXPECT_EQ((*made)->name(), name);
    EXPECT_THAT(who_sends_the_rest(**made), testing::HasSubstr("troupe sync"));
  }
}

// A server, a program or a path from a folder would get the caller's key.
TEST(choose_options_test, asks_for_what_is_not_called_harmless) {
  auto of = [](const std::string& tracker, const std::string& in_folder) {
    auto chosen = choose_options(tracker, in_folder, {});
    EXPECT_TRUE(chosen) << tracker;
    return chosen->unconfirmed;
  };
  using testing::ElementsAre;
  EXPECT_THAT(of("comet", R"({"url": "x", "offline_directory": "x"})"),
              ElementsAre("offline_directory=\"x\"", "url=\"x\""));
  EXPECT_THAT(of("mlflow", R"({"databricks_config_file": "x",
                "databricks_profile": "x", "tracking_uri": "x"})"),
              ElementsAre("databricks_config_file=\"x\"",
                          "databricks_profile=\"x\"", "tracking_uri=\"x\""));
  EXPECT_THAT(of("prometheus", R"({"address": "x", "port": 1})"),
              ElementsAre("address=\"x\"", "port=1"));
  EXPECT_THAT(of("tensorboard", R"({"log_dir": "x"})"),
              ElementsAre("log_dir=\"x\""));
  EXPECT_THAT(of("wandb", R"({"dir": "x", "program": "x"})"),
              ElementsAre("dir=\"x\"", "program=\"x\""));
  // What one tracker calls harmless is not so in another.
  EXPECT_THAT(of("csv", R"({"mode": "x"})"), ElementsAre("mode=\"x\""));
}

TEST(default_trackers_test,
     waits_for_a_table_of_the_user_as_for_the_default_one) {
  auto named = csv_tracker();
  auto own = default_trackers(run_config{}).front();
  ASSERT_EQ(own->target()->name(), "csv");
  EXPECT_EQ(named->options().finish_timeout, own->options().finish_timeout);
  EXPECT_EQ(named->options().failing_timeout, own->options().failing_timeout);
}

TEST(choose_options_test, shows_no_user_of_an_address) {
  auto chosen = choose_options(
    "comet", R"({"url": "https://me:hunter2@comet.local:1/x?token=abc"})", {});
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_THAT(chosen->unconfirmed,
              testing::ElementsAre("url=\"https://comet.local:1/x\""));
}

TEST(choose_options_test, shows_no_control_character) {
  auto chosen = choose_options("comet",
                               R"({"url": "https://comet.local/\u001b[2J\u007f",
        "workspace": "\u001b[2J"})",
                               {});
  ASSERT_TRUE(chosen) << chosen.error().message;
  for (auto& all : {chosen->unconfirmed, chosen->taken})
    for (auto& text : all)
      EXPECT_TRUE(
        std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; }))
        << text;
  EXPECT_EQ(chosen->unconfirmed.size() + chosen->taken.size(), 2u);
}
