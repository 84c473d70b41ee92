#include "troupe/callbacks/wandb/wandb_records.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

TEST(wandb_records_test, reads_back_what_identifies_a_row) {
  wandb_records records;
  std::vector<wandb_item> row{{"loss", "NaN"},
                              {std::string{wandb_report_key}, "3"},
                              {"_step", "9007199254740993"}};
  auto seen = see_wandb_record(records.history(1, row));
  EXPECT_EQ(seen.step, 9007199254740993);
  EXPECT_EQ(seen.report, 3);
  EXPECT_EQ(seen.logged, std::nullopt);
  EXPECT_FALSE(seen.exit);
  EXPECT_EQ(seen.attempt, std::nullopt);
  std::vector<wandb_item> config{{"_step", "7"},
                                 {std::string{wandb_attempt_key}, "4"}};
  seen = see_wandb_record(records.config(config));
  EXPECT_EQ(seen.attempt, 4);
  EXPECT_EQ(seen.step, std::nullopt);
  EXPECT_TRUE(see_wandb_record(records.exit(1, std::chrono::seconds{2})).exit);
  auto text = records.history(1, row);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(see_wandb_record(text.substr(0, size)).exit);
}

TEST(wandb_records_test, writes_values_as_json_of_python) {
  EXPECT_EQ(wandb_json(std::nan("")), "NaN");
  EXPECT_EQ(wandb_json(HUGE_VAL), "Infinity");
  EXPECT_EQ(wandb_json(-HUGE_VAL), "-Infinity");
  EXPECT_EQ(wandb_json(9007199254740993), "9007199254740993");
  EXPECT_EQ(wandb_json(0.1), "0.1");
  EXPECT_EQ(wandb_json(2.0), "2.0");
  EXPECT_EQ(wandb_json(true), "true");
  EXPECT_EQ(wandb_json("a\"\n\xff"), "\"a\\\"\\n\xef\xbf\xbd\"");
  EXPECT_EQ(wandb_config_json(std::nan("")), "null");
  EXPECT_EQ(wandb_config_json(-HUGE_VAL), "null");
  EXPECT_EQ(wandb_config_json(0.1), "0.1");
  EXPECT_EQ(wandb_config_json("nan"), "\"nan\"");
}

} // namespace
} // namespace troupe::internal
