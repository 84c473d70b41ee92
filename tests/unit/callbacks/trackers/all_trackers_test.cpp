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

TEST(make_sink_test, has_every_tracker_that_sentences_send_to_troupe_sync) {
  for (auto name : {"comet", "csv", "mlflow", "prometheus", "report_page",
                    "result_json", "tensorboard", "wandb"}) {
    EXPECT_TRUE(is_in_troupe_sync(name)) << name;
    EXPECT_TRUE(make_sink(name, "{}")) << name;
  }
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
