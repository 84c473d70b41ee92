#include "troupe/trainers/early_stopping.hpp"

#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include "troupe/trainers/train_error.hpp"

namespace troupe::internal::test {

TEST(early_stopping_test, ends_after_some_values_without_an_improvement) {
  early_stopping stopping{{.monitor = "loss", .patience = 2}};
  for (auto value : {5.0, 4.0, 4.5})
    EXPECT_FALSE(stopping.step(metrics{{"loss", value}})) << value;
  EXPECT_TRUE(stopping.step(metrics{{"loss", 4.25}}));
  EXPECT_EQ(stopping.reason(),
            "'loss' is 4.25, and was not better than 4 for 2 checks in a row");
  EXPECT_EQ(stopping.best(), 4);
  EXPECT_THROW(stopping.step(metrics{{"los", 1}}), std::out_of_range);
}

TEST(early_stopping_test, continues_where_its_state_says) {
  early_stopping first{{.mode = score_order::max, .patience = 2}};
  EXPECT_FALSE(first.step(0.5));
  EXPECT_FALSE(first.step(0.25));
  early_stopping second{{.mode = score_order::max, .patience = 2}};
  second.load_state(first.state());
  EXPECT_TRUE(second.step(0.5));
  EXPECT_EQ(second.reason(), "the value is 0.5, and was not better than 0.5 "
                             "for 2 checks in a row");
}

TEST(early_stopping_test, what_is_not_finite_ends_at_once_if_checked) {
  auto nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(early_stopping{}.step(nan));
  EXPECT_FALSE((early_stopping{{.check_finite = false}}.step(nan)));
}

TEST(early_stopping_test, a_later_value_that_improves_leaves_no_reason) {
  early_stopping stopping;
  EXPECT_TRUE(stopping.step(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_NE(stopping.reason(), "");
  EXPECT_FALSE(stopping.step(1));
  EXPECT_EQ(stopping.reason(), "");
  EXPECT_EQ(stopping.state().reason, "");
}

TEST(early_stopping_test, refuses_options_out_of_range) {
  EXPECT_THROW((early_stopping{{.patience = -1}}), train_error);
  EXPECT_THROW((early_stopping{{.min_delta = -1}}), train_error);
}

} // namespace troupe::internal::test
