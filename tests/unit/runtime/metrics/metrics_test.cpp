#include "troupe/runtime/metrics/metrics.hpp"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

using namespace troupe;
using namespace troupe::internal;

// A misspelled name was added, as false.
TEST(metrics_test, reading_a_missing_name_adds_none) {
  metrics x{{"loss", 0.5}};
  EXPECT_THROW((void) x["lose"].number(), std::out_of_range);
  EXPECT_THROW((void) metric_value{x["lose"]}, std::out_of_range);
  EXPECT_THROW((void) (x["lose"] == 0.5), std::out_of_range);
  EXPECT_THROW((void) std::as_const(x)["lose"], std::out_of_range);
  EXPECT_EQ(x, (metrics{{"loss", 0.5}}));
}

namespace {

/// What *read* throws.
template <class Exception, class F>
std::string text_of(F read) {
  try {
    read();
  } catch (const Exception& x) {
    return x.what();
  }
  return "";
}

} // namespace

TEST(metrics_test, a_missing_name_is_answered_with_the_names_that_exist) {
  metrics x{{"train/loss", 0.5}, {"val/accuracy", 0.9}};
  EXPECT_EQ(text_of<std::out_of_range>([&] { (void) x["train/los"].value(); }),
            "no metric is called 'train/los'; there are train/loss, "
            "val/accuracy; did you mean train/loss?");
  EXPECT_EQ(text_of<std::out_of_range>([&] { (void) x.number("epoch"); }),
            "no metric is called 'epoch'; there are train/loss, val/accuracy");
  EXPECT_EQ(text_of<std::out_of_range>([] { (void) metrics{}.number("x"); }),
            "no metric is called 'x'; there is none");
}

TEST(metrics_test, a_value_outlives_the_metrics_of_an_expression) {
  auto make = [] { return metrics{{"loss", 0.5}}; };
  auto loss = make()["loss"];
  static_assert(std::is_same_v<decltype(loss), metric_value>);
  EXPECT_EQ(loss.number(), 0.5);
  EXPECT_THROW((void) make()["lose"], std::out_of_range);
}

TEST(metrics_test, converts_to_a_number_when_asked_to) {
  metrics x{{"epoch", 3}, {"is_best", true}, {"loss", 0.5}, {"note", "fine"}};
  EXPECT_EQ(x.number("epoch"), 3);
  EXPECT_EQ(x.number("is_best"), 1);
  EXPECT_EQ(x.number("loss"), 0.5);
  EXPECT_EQ(text_of<std::invalid_argument>([&] { (void) x.number("note"); }),
            "the metric 'note' is the text 'fine', not a number");
  EXPECT_THROW((void) x["note"].number(), std::invalid_argument);
  EXPECT_THROW((void) std::as_const(x)["note"].number(), std::invalid_argument);
  EXPECT_EQ(x.find_number("loss"), 0.5);
  EXPECT_EQ(x.find_number("note"), std::nullopt);
  EXPECT_EQ(x.find_number("los"), std::nullopt);
}

TEST(metrics_test,
     an_integer_that_does_not_fit_becomes_a_floating_point_number) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(metric_value{most}.number(), 18446744073709551616.0);
  EXPECT_EQ(metric_value{most / 2}, metric_value{std::int64_t{most / 2}});
  EXPECT_EQ(metric_value{-1}.number(), -1);
}

TEST(metrics_test, reads_by_name_what_it_was_given_by_name) {
  metrics x;
  x["loss"] = 0.5;
  x["note"] = "best";
  x["last"] = x["loss"];
  x["loss"] = 2;
  EXPECT_EQ(x, (metrics{{"loss", 2}, {"note", "best"}, {"last", 0.5}}));
  EXPECT_EQ(x["note"], metric_value{"best"});
  EXPECT_EQ(x["last"].number(), 0.5);
  EXPECT_EQ(std::as_const(x)["loss"], metric_value{2});
  EXPECT_FALSE(x["note"].is_number());
  EXPECT_EQ(to_string(x["loss"]), "2");
}
