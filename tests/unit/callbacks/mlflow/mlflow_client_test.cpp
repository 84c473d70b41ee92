#include "troupe/callbacks/mlflow/mlflow_client.hpp"

#include <limits>
#include <random>

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "tests/support/sanitized.hpp"

namespace troupe::internal::test {
namespace {

using json = nlohmann::json;

constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
constexpr auto inf = std::numeric_limits<double>::infinity();

TEST(mlflow_batch_test, writes_metrics_as_the_server_reads_them) {
  const std::vector<mlflow_metric> metrics{{"loss", 0.1, 1700, -2},
                                           {"a \"b\"", 3, 1, 0}};
  auto bodies = metric_bodies("r1", metrics);
  ASSERT_EQ(bodies.size(), 1u);
  EXPECT_EQ(bodies[0].items, 2u);
  EXPECT_EQ(bodies[0].json,
            R"({"run_id":"r1","metrics":[)"
            R"({"key":"loss","value":0.1,"timestamp":1700,"step":-2},)"
            R"({"key":"a \"b\"","value":3.0,"timestamp":1,"step":0}]})");
}

TEST(mlflow_batch_test, has_no_bare_number_that_is_not_finite) {
  constexpr std::numeric_limits<double> limits;
  const std::vector<mlflow_metric> metrics{{"NaN", nan, 1, 1},
                                           {"NaN", -nan, 1, 1},
                                           {"Infinity", inf, 1, 1},
                                           {"Infinity", -inf, 1, 1},
                                           {"max", limits.max(), 1, 1},
                                           {"low", limits.lowest(), 1, 1},
                                           {"tiny", limits.denorm_min(), 1, 1}};
  auto body = metric_bodies("r", metrics).at(0).json;
  auto values = json::parse(body).at("metrics"); // Refuses bare ones itself.
  EXPECT_EQ(values[0]["value"], "NaN");
  EXPECT_EQ(values[1]["value"], "NaN");
  EXPECT_EQ(values[2]["value"], "Infinity");
  EXPECT_EQ(values[3]["value"], "-Infinity");
  EXPECT_EQ(values[4]["value"], limits.max());
  EXPECT_EQ(values[5]["value"], limits.lowest());
  EXPECT_EQ(values[6]["value"], limits.denorm_min());
}

TEST(mlflow_batch_test, keeps_steps_and_times_as_whole_numbers) {
  constexpr auto far = std::numeric_limits<std::int64_t>::max();
  const std::vector<mlflow_metric> metrics{{"x", 1, far, far}};
  auto value =
    json::parse(metric_bodies("r", metrics).at(0).json)["metrics"][0];
  EXPECT_TRUE(value["step"].is_number_integer());
  EXPECT_EQ(value["step"], far);
  EXPECT_EQ(value["timestamp"], far);
}

TEST(mlflow_batch_test, makes_no_request_of_nothing) {
  EXPECT_TRUE(metric_bodies("r", {}).empty());
  EXPECT_TRUE(param_bodies("r", {}).empty());
  EXPECT_TRUE(tag_bodies("r", {}).empty());
}

TEST(mlflow_batch_test, begins_a_new_request_just_past_each_limit) {
  for (std::size_t n : {999u, 1000u, 1001u, 2000u, 2001u})
    EXPECT_EQ(metric_bodies("r", std::vector<mlflow_metric>(n)).size(),
              (n + 999) / 1000)
      << n;
  for (std::size_t n : {99u, 100u, 101u, 201u}) {
    EXPECT_EQ(param_bodies("r", std::vector<mlflow_pair>(n)).size(),
              (n + 99) / 100)
      << n;
    EXPECT_EQ(tag_bodies("r", std::vector<mlflow_pair>(n)).size(),
              (n + 99) / 100)
      << n;
  }
}

/// For random limits and items: every body is within the limits, and together
/// they contain all items in order.
TEST(mlflow_batch_test, splits_any_items_within_any_limits) {
  std::mt19937 random{7};
  auto up_to = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n}(random);
  };
  for (int round = 0; round < (sanitized ? 40 : 300); ++round) {
    mlflow_limits limits{.metrics = 1 + up_to(20),
                         .pairs = 1 + up_to(20),
                         .bytes = 700 + up_to(3000)};
    std::vector<mlflow_metric> metrics(up_to(100));
    for (auto& x : metrics)
      x = {std::string(up_to(80), 'k'), static_cast<double>(up_to(9)) / 3,
           static_cast<std::int64_t>(up_to(1u << 30)), 1};
    std::vector<mlflow_pair> pairs(up_to(100));
    for (auto& x : pairs)
      x = {std::string(up_to(20), '"'), std::string(up_to(40), '\x01')};
    auto check = [&](const std::vector<mlflow_body>& bodies, const char* field,
                     std::size_t most) {
      json all = json::array();
      for (const auto& body : bodies) {
        EXPECT_LE(body.json.size(), limits.bytes);
        EXPECT_LE(body.items, most);
        auto items = json::parse(body.json).at(field);
        EXPECT_EQ(items.size(), body.items);
        EXPECT_GT(items.size(), 0u);
        all.insert(all.end(), items.begin(), items.end());
      }
      return all;
    };
    auto points =
      check(metric_bodies("run", metrics, limits), "metrics", limits.metrics);
    ASSERT_EQ(points.size(), metrics.size());
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      EXPECT_EQ(points[i]["timestamp"], metrics[i].time_ms);
      EXPECT_EQ(points[i]["value"], metrics[i].value);
    }
    for (const auto* field : {"params", "tags"}) {
      auto bodies = field[0] == 'p' ? param_bodies("run", pairs, limits)
                                    : tag_bodies("run", pairs, limits);
      auto values = check(bodies, field, limits.pairs);
      ASSERT_EQ(values.size(), pairs.size());
      for (std::size_t i = 0; i < pairs.size(); ++i)
        EXPECT_EQ(values[i]["value"], pairs[i].value);
    }
  }
}

} // namespace
} // namespace troupe::internal::test
