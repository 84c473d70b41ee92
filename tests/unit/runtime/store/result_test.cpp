#include "troupe/runtime/store/result.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST(result_test, is_of_no_run_where_none_began) {
  temporary_folder folder;
  fs::current_path(folder.path());
  write_bytes(folder / "journal.jsonl", "of another run");
  for (auto& x : {result{}.metrics_history().map([](auto&&) {}),
                  result::from_path("").map([](auto&&) {})}) {
    ASSERT_FALSE(x);
    EXPECT_EQ(x.error().code, ec::invalid_argument);
  }
  fs::current_path("/");
}

TEST(result_test, finds_the_best_checkpoint_by_any_metric) {
  auto nan = std::numeric_limits<double>::quiet_NaN();
  auto named = [](const char* name, std::uint64_t index, metrics values) {
    return reported_checkpoint{
      checkpoint::from_directory(fs::path{"/c"} / name), std::move(values),
      index, 0};
  };
  result x;
  x.best_checkpoints = {named("a", 2, {{"loss", 1.0}, {"acc", 5}}),
                        named("b", 1, {{"loss", 1.0}}),
                        named("c", 3, {{"loss", nan}, {"note", "text"}})};
  auto best = [&](const char* metric, score_order order) {
    return x.best_checkpoint(metric, order)->data.name();
  };
  EXPECT_EQ(best("loss", score_order::max), "a"); // ties go to the newer
  EXPECT_EQ(best("loss", score_order::min), "a");
  EXPECT_EQ(best("acc", score_order::min), "a");
  auto unknown = x.best_checkpoint("note", score_order::max);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ec::invalid_argument);
  EXPECT_NE(unknown.error().message.find("acc, loss"), std::string::npos);
}

TEST(result_test, a_value_taken_from_a_temporary_result_outlives_it) {
  static_assert(
    std::is_same_v<decltype(std::declval<result>().value_or_throw()), result>);
  auto&& taken =
    [] {
      result x;
      x.metrics = {{"loss", 0.5}};
      return x;
    }()
      .value_or_throw();
  EXPECT_EQ(taken.metrics.at("loss"), metric_value{0.5});
}
