#include "troupe/runtime/store/retention.hpp"

#include <gmock/gmock.h>

#include <limits>

using namespace troupe;
using namespace troupe::internal;
using testing::ElementsAre;
using testing::IsEmpty;

namespace {

constexpr auto not_a_number = std::numeric_limits<double>::quiet_NaN();

kept_checkpoint named(const std::string& name, std::uint64_t index,
                      const metrics& values = {}) {
  return {checkpoint::from_directory("/run/checkpoints/" + name), values, index,
          0};
}

std::vector<std::string> names(const std::vector<kept_checkpoint>& all) {
  std::vector<std::string> result;
  for (auto& x : all)
    result.push_back(x.data.name());
  return result;
}

checkpoint_config keep(int count, const std::string& metric = {},
                       score_order order = score_order::max) {
  return {count, metric, order};
}

// Adds checkpoints one after another, called "0", "1", ….
checkpoint_registry registry_of(const checkpoint_config& config,
                                const std::vector<metrics>& values) {
  checkpoint_registry result{config};
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(result.add(named(std::to_string(i), i, values[i])));
  return result;
}

} // namespace

TEST(retention_test, keeps_all_by_default) {
  auto registry = registry_of({}, {{}, {}, {}});
  EXPECT_THAT(names(registry.all()), ElementsAre("0", "1", "2"));
  EXPECT_THAT(names(registry.best()), ElementsAre("0", "1", "2"));
}

TEST(retention_test, keeps_the_newest_without_a_score) {
  auto registry = registry_of(keep(2), {{}, {}, {}, {}});
  EXPECT_THAT(names(registry.all()), ElementsAre("2", "3"));
  EXPECT_THAT(names(registry.best()), ElementsAre("2", "3"));
}

TEST(retention_test, keeps_the_best_and_the_latest) {
  std::vector<metrics> values{
    {{"acc", 0.9}}, {{"acc", 0.8}}, {{"acc", 0.95}}, {{"acc", 0.1}}};
  auto registry = registry_of(keep(2, "acc"), values);
  EXPECT_THAT(names(registry.all()), ElementsAre("0", "2", "3"));
  EXPECT_THAT(names(registry.best()), ElementsAre("0", "2"));
  // The bad one goes as soon as it is not the latest any more.
  auto evicted = registry.add(named("4", 4, {{"acc", 0.2}}));
  EXPECT_THAT(names(evicted.value()), ElementsAre("3"));
}

TEST(retention_test, prefers_the_smallest_on_request) {
  std::vector<metrics> values{{{"loss", 3.0}}, {{"loss", 1}}, {{"loss", 2.0}}};
  auto registry = registry_of(keep(1, "loss", score_order::min), values);
  EXPECT_THAT(names(registry.all()), ElementsAre("1", "2"));
  EXPECT_THAT(names(registry.best()), ElementsAre("1"));
}

TEST(retention_test, gives_ties_to_the_newer) {
  std::vector<metrics> values{{{"x", 1}}, {{"x", 1.0}}, {{"x", true}}};
  for (auto order : {score_order::max, score_order::min}) {
    auto registry = registry_of(keep(2, "x", order), values);
    EXPECT_THAT(names(registry.best()), ElementsAre("1", "2"));
  }
}

TEST(retention_test, ranks_unusable_scores_last_in_both_orders) {
  auto infinity = std::numeric_limits<double>::infinity();
  std::vector<kept_checkpoint> all{named("infinite", 0, {{"x", infinity}}),
                                   named("number", 1, {{"x", 5}}),
                                   named("minus", 2, {{"x", -infinity}}),
                                   named("nan", 3, {{"x", not_a_number}}),
                                   named("missing", 4),
                                   named("text", 5, {{"x", "9"}})};
  EXPECT_THAT(
    names(retention{keep(6, "x")}.best(all)),
    ElementsAre("nan", "missing", "text", "minus", "number", "infinite"));
  EXPECT_THAT(
    names(retention{keep(6, "x", score_order::min)}.best(all)),
    ElementsAre("nan", "missing", "text", "infinite", "number", "minus"));
}

TEST(retention_test, finds_nested_metrics_by_their_path) {
  std::vector<metrics> values(2);
  values[0].add_group("val", {{"loss", 1.0}});
  values[1].add_group("val", {{"loss", 2.0}});
  auto registry = registry_of(keep(1, "val/loss", score_order::min), values);
  EXPECT_THAT(names(registry.best()), ElementsAre("0"));
}

TEST(checkpoint_registry_test, refuses_names_in_use_and_older_reports) {
  checkpoint_registry registry{{}};
  EXPECT_EQ(registry.latest(), nullptr);
  ASSERT_TRUE(registry.add(named("a", 3)));
  EXPECT_EQ(registry.add(named("a", 4)).error().code, ec::conflict);
  EXPECT_EQ(registry.add(named("b", 3)).error().code, ec::conflict);
  EXPECT_EQ(registry.add(named("b", 2)).error().code, ec::conflict);
  EXPECT_THAT(registry.add(named("b", 4)).value(), IsEmpty());
  EXPECT_EQ(registry.latest()->data.name(), "b");
  EXPECT_TRUE(registry.remove("b"));
  EXPECT_FALSE(registry.remove("b"));
  EXPECT_EQ(registry.latest()->data.name(), "a");
}

TEST(checkpoint_registry_test, ranks_those_that_are_left_by_their_own_scores) {
  auto registry = registry_of(keep(2, "acc"), {{{"acc", 0.1}}, {{"acc", 0.9}}});
  EXPECT_TRUE(registry.remove("0"));
  ASSERT_THAT(registry.add(named("2", 2, {{"acc", 0.5}})).value(), IsEmpty());
  auto evicted = registry.add(named("3", 3, {{"acc", 0.7}}));
  EXPECT_THAT(names(evicted.value()), ElementsAre("2"));
  EXPECT_THAT(names(registry.best()), ElementsAre("3", "1"));
}

TEST(checkpoint_registry_test, gives_a_long_list_in_pages) {
  constexpr std::size_t max_bytes = 1 << 20;
  metrics values{{"notes", std::string(1000, 'x')}};
  checkpoint_registry registry{{}};
  for (std::uint64_t i = 0; i < 3000; ++i)
    ASSERT_TRUE(registry.add(named(std::to_string(i), 2 * i, values)));
  std::vector<kept_checkpoint> found;
  auto pages = 0;
  for (auto more = true; more; ++pages) {
    auto page =
      registry.page(found.empty() ? 0 : found.back().index + 1, max_bytes);
    ASSERT_FALSE(page.entries.empty());
    EXPECT_LE(page.entries.size(), 1024u);
    more = page.more;
    for (auto& x : page.entries)
      found.push_back(x);
  }
  EXPECT_EQ(found, registry.all());
  EXPECT_GE(pages, 3);
  EXPECT_EQ(registry.page(1, max_bytes).entries.front().index, 2u);
  EXPECT_TRUE(registry.page(6000, max_bytes).entries.empty());
  EXPECT_FALSE(registry.page(6000, max_bytes).more);
  auto one = registry.page(0, 1); // one at least
  EXPECT_EQ(one.entries.size(), 1u);
  EXPECT_TRUE(one.more);
}
