#include "troupe/callbacks/tracking/loop_record.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

metrics read_back(const loop_record& x) {
  auto sent = to_event(x);
  auto found = to_loop_record(sent.kind, sent.fields);
  EXPECT_TRUE(found) << sent.kind;
  EXPECT_EQ(found->index(), x.index()) << sent.kind;
  EXPECT_EQ(to_event(*found), sent);
  return sent.fields;
}

TEST(loop_record_test, reads_back_as_it_was) {
  EXPECT_EQ(read_back(loop_start{"p", "e", "d"}).size(), 3u);
  EXPECT_EQ(read_back(loop_finish{run_status_kind::preempted}),
            (metrics{{"status", "preempted"}}));
  EXPECT_EQ(read_back(logged_metrics{7, {{"step", 1.5}, {"a/b", "text"}}}),
            (metrics{{"step", 7}, {"v/step", 1.5}, {"v/a/b", "text"}}));
  EXPECT_EQ(read_back(logged_params{{{"lr", 0.5}}}), (metrics{{"v/lr", 0.5}}));
  EXPECT_EQ(read_back(logged_text{7, "n", "t"}).size(), 3u);
  EXPECT_EQ(read_back(logged_image{7, "n", "media/n.png", 4, 3, 1}),
            (metrics{{"step", 7},
                     {"name", "n"},
                     {"file", "media/n.png"},
                     {"width", 4},
                     {"height", 3},
                     {"channels", 1}}));
  auto histogram =
    read_back(logged_histogram{7, "n", -1, 2, 3, 4, {0.5, 2}, {1, 3}});
  EXPECT_EQ(histogram.at("limits"), metric_value{"0.5 2"});
  EXPECT_EQ(histogram.size(), 8u);
  EXPECT_EQ(read_back(logged_artifact{"artifacts/a", "a"}).size(), 2u);
}

TEST(loop_record_test, has_defaults_for_fields_that_are_missing_or_damaged) {
  for (auto& fields : {metrics{}, metrics{{"step", "seven"},
                                          {"min", "low"},
                                          {"limits", "x 1"},
                                          {"counts", 1},
                                          {"name", 1}}}) {
    auto found = to_loop_record("tracker_histogram", fields);
    ASSERT_TRUE(found);
    auto& x = std::get<logged_histogram>(*found);
    EXPECT_EQ(x.step, 0);
    EXPECT_EQ(x.min, 0);
    EXPECT_EQ(x.name, "");
    EXPECT_TRUE(x.limits.empty());
    EXPECT_TRUE(x.counts.empty());
  }
  auto ended = to_loop_record("tracker_finish", {{"status", "odd"}});
  EXPECT_EQ(std::get<loop_finish>(*ended).status, run_status_kind::errored);
}

TEST(loop_record_test, leaves_other_events_alone) {
  EXPECT_FALSE(to_loop_record("tracker_of_later", {}));
  EXPECT_FALSE(to_loop_record("run_ended", {{"status", "finished"}}));
}

} // namespace
} // namespace troupe::internal
