#include "troupe/runtime/run/mailbox_window.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

TEST(mailbox_window_test, has_as_many_places_as_its_capacity) {
  mailbox_window window{2};
  EXPECT_TRUE(window.take_place());
  EXPECT_TRUE(window.take_place());
  EXPECT_FALSE(window.take_place());
  window.give_back(1);
  EXPECT_TRUE(window.take_place());
  EXPECT_FALSE(window.take_place());
}

TEST(mailbox_window_test, has_no_more_places_than_that) {
  mailbox_window window{1};
  window.give_back(7);
  EXPECT_TRUE(window.take_place());
  EXPECT_FALSE(window.take_place());
}

TEST(mailbox_window_test, tells_of_drops_once) {
  mailbox_window window{1};
  EXPECT_EQ(window.news_of_drops(), std::nullopt);
  window.drop();
  window.drop();
  EXPECT_EQ(window.news_of_drops(), 2u);
  EXPECT_EQ(window.news_of_drops(), std::nullopt);
  window.drop();
  EXPECT_EQ(window.news_of_drops(), 3u);
}

TEST(mailbox_returns_test, gives_a_quarter_back_at_once) {
  mailbox_returns returns{12};
  EXPECT_EQ(returns.take(false), 0u);
  EXPECT_EQ(returns.take(false), 0u);
  EXPECT_EQ(returns.take(false), 3u);
  EXPECT_EQ(returns.take(false), 0u);
}

TEST(mailbox_returns_test, gives_all_back_once_nothing_waits) {
  mailbox_returns returns{12};
  EXPECT_EQ(returns.take(false), 0u);
  EXPECT_EQ(returns.take(true), 2u);
  EXPECT_EQ(returns.take(true), 1u);
}

TEST(mailbox_returns_test, a_small_mailbox_gives_each_place_back) {
  mailbox_returns returns{3};
  EXPECT_EQ(returns.take(false), 1u);
  EXPECT_EQ(returns.take(false), 1u);
}

} // namespace
} // namespace troupe::internal
