#include "troupe/callbacks/report_page/comparison.hpp"

#include <algorithm>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/written_run.hpp"

namespace troupe::internal::test {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

/// A run with a report for each of *losses*, scored by the lowest.
struct scored_run : written_run {
  scored_run(const std::string& config, const std::vector<double>& losses)
    : written_run(config) {
    begin_attempt(0, 0);
    for (std::size_t i = 0; i < losses.size(); ++i)
      report({.index = i,
              .seconds = static_cast<double>(i + 1),
              .values = {{{"loss", losses[i]}}}});
    saved_run saved;
    saved.retention = {{}, "loss", score_order::min};
    state(saved);
  }
};

comparison comparison_of(const std::vector<fs::path>& paths) {
  return compare_runs(paths).value();
}

} // namespace

TEST(comparison_test, settings_with_differing_values_are_marked) {
  scored_run a{R"({"config":{"lr":0.5,"epochs":3}})", {1}};
  scored_run b{R"({"config":{"lr":0.1,"epochs":3,"seed":7}})", {1}};
  auto x = comparison_of({a.path(), b.path()});
  ASSERT_EQ(x.config.size(), 3u);
  for (auto& setting : x.config)
    EXPECT_EQ(setting.differs, setting.name != "epochs") << setting.name;
  auto seed = std::ranges::find(x.config, "seed", &comparison::setting::name);
  EXPECT_THAT(seed->values,
              ElementsAre(std::nullopt, Optional(std::string{"7"})));
}

TEST(comparison_test, the_best_value_is_that_of_the_score) {
  scored_run a{{}, {3, 1, 2}}, b{{}, {}};
  auto x = comparison_of({a.path(), b.path()});
  auto best = best_of(x.runs[0]);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->metric, "loss");
  EXPECT_EQ(best->order, score_order::min);
  EXPECT_EQ(best->value, 1);
  EXPECT_FALSE(best_of(x.runs[1]));
}

TEST(comparison_test, runs_of_one_name_are_called_by_their_paths) {
  scored_run a{{}, {1}}, b{{}, {1}};
  auto x = comparison_of({a.path(), b.path()});
  EXPECT_EQ(x.runs[0].label, a.path().string());
  EXPECT_EQ(x.runs[1].label, b.path().string());
}

TEST(comparison_test, a_chart_has_a_curve_of_each_run_with_that_metric) {
  scored_run a{{}, {1, 2}}, b{{}, {3}};
  b.report({.index = 1, .seconds = 5, .values = {{{"accuracy", 0.5}}}});
  auto data = comparison_data(comparison_of({a.path(), b.path()}));
  EXPECT_THAT(data, HasSubstr(R"("title":"accuracy")"));
  EXPECT_THAT(data, HasSubstr(R"("run":0)"));
  EXPECT_THAT(data, HasSubstr(R"("mean":[1,2])"));
  EXPECT_THAT(data, HasSubstr(R"("run":1)"));
  EXPECT_THAT(data, HasSubstr(R"("mean":[3])"));
  EXPECT_THAT(data, HasSubstr(R"("mean":[0.5])"));
}

TEST(comparison_test,
     what_a_run_lacks_is_a_complaint_and_the_others_are_shown) {
  scored_run a{{}, {1}}, b{{}, {1}};
  a.damage("{\"broken\n");
  fs::remove(b.path() / "journal.jsonl");
  auto x = comparison_of({a.path(), b.path()});
  EXPECT_EQ(x.runs[0].digest().damage_count, 1u);
  EXPECT_THAT(x.runs[1].facts.complaints,
              ElementsAre(HasSubstr("journal.jsonl")));
  auto data = comparison_data(x);
  EXPECT_THAT(data, HasSubstr("1 line of the journal could not be read"));
}

TEST(comparison_test, a_later_comparison_reads_what_is_new_in_the_journals) {
  scored_run a{{}, {1, 2}}, b{{}, {3}};
  auto first = comparison_of({a.path(), b.path()});
  // What was read already is not looked at again.
  auto journal = a.path() / "journal.jsonl";
  write_bytes(journal, std::string(bytes_of(journal).size() - 1, ' ') + '\n');
  a.report({.index = 2, .seconds = 3, .values = {{{"loss", 0.5}}}});
  auto next = compare_runs(std::move(first.runs)).value();
  EXPECT_EQ(next.runs[0].digest().reports, 3u);
  EXPECT_EQ(next.runs[0].digest().damage_count, 0u);
  EXPECT_EQ(next.runs[1].digest().reports, 1u);
}

TEST(comparison_test, refuses_a_folder_that_is_not_a_run) {
  scored_run a{{}, {1}};
  temporary_folder other;
  auto x = compare_runs(std::vector<fs::path>{a.path(), other.path()});
  ASSERT_FALSE(x);
  EXPECT_EQ(x.error().code, ec::invalid_argument);
}

} // namespace troupe::internal::test
