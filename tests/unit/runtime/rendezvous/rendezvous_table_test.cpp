#include "troupe/runtime/rendezvous/rendezvous_table.hpp"

#include <limits>
#include <random>
#include <set>

#include <gmock/gmock.h>

namespace troupe::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(rendezvous_table_test, keeps_what_is_set) {
  rendezvous_table table;
  EXPECT_EQ(table.find("a"), nullptr);
  EXPECT_THAT(table.set("a", std::string("x\0y", 3)), IsEmpty());
  EXPECT_EQ(*table.find("a"), std::string("x\0y", 3));
  table.set("a", "z");
  EXPECT_EQ(*table.find("a"), "z");
  EXPECT_EQ(table.size(), 1u);
  EXPECT_TRUE(table.erase("a"));
  EXPECT_FALSE(table.erase("a"));
  EXPECT_EQ(table.size(), 0u);
}

TEST(rendezvous_table_test, counts_in_decimal_text) {
  rendezvous_table table;
  EXPECT_EQ(table.add("n", 5)->value, 5);
  EXPECT_EQ(*table.find("n"), "5");
  EXPECT_EQ(table.add("n", -7)->value, -2);
  EXPECT_EQ(*table.find("n"), "-2");
  table.set("n", "40");
  EXPECT_EQ(table.add("n", 2)->value, 42);
}

TEST(rendezvous_table_test, refuses_to_add_to_a_value_that_is_not_a_number) {
  rendezvous_table table;
  for (auto* text : {"", "x", "1x", " 1", "99999999999999999999"}) {
    table.set("n", text);
    auto sum = table.add("n", 1);
    ASSERT_FALSE(sum) << text;
    EXPECT_EQ(sum.error().code, ec::invalid_argument);
    EXPECT_THAT(sum.error().message, HasSubstr("\"n\""));
    EXPECT_EQ(*table.find("n"), text);
  }
  table.set("n", std::to_string(std::numeric_limits<std::int64_t>::max()));
  EXPECT_FALSE(table.add("n", 1));
}

TEST(rendezvous_table_test, checks_for_all_keys_at_once) {
  rendezvous_table table;
  EXPECT_TRUE(table.check({}));
  table.set("a", "");
  EXPECT_TRUE(table.check({"a"}));
  EXPECT_FALSE(table.check({"a", "b"}));
}

TEST(rendezvous_table_test, a_wait_for_existing_keys_returns_at_once) {
  rendezvous_table table;
  table.set("a", "1");
  EXPECT_TRUE(table.wait({"a"}, 1));
  EXPECT_TRUE(table.wait({}, 2));
  EXPECT_THAT(table.set("a", "2"), IsEmpty());
}

TEST(rendezvous_table_test, releases_a_waiter_with_its_last_key_and_once) {
  rendezvous_table table;
  EXPECT_FALSE(table.wait({"a", "b", "b"}, 1));
  EXPECT_THAT(table.set("b", ""), IsEmpty());
  EXPECT_THAT(table.set("b", ""), IsEmpty());
  EXPECT_THAT(table.set("a", ""), ElementsAre(1));
  EXPECT_THAT(table.set("a", ""), IsEmpty());
}

TEST(rendezvous_table_test, releases_waiters_in_the_order_they_came) {
  rendezvous_table table;
  for (auto waiter : {9, 3, 7})
    EXPECT_FALSE(table.wait({"a"}, static_cast<std::uint64_t>(waiter)));
  EXPECT_THAT(table.set("a", ""), ElementsAre(9, 3, 7));
}

TEST(rendezvous_table_test, every_way_to_make_a_key_releases) {
  rendezvous_table table;
  EXPECT_FALSE(table.wait({"sum"}, 1));
  EXPECT_THAT(table.add("sum", 1)->released, ElementsAre(1));
  EXPECT_FALSE(table.wait({"swap"}, 2));
  EXPECT_THAT(table.compare_set("swap", "other", "x").released, IsEmpty());
  EXPECT_THAT(table.compare_set("swap", "", "x").released, ElementsAre(2));
}

TEST(rendezvous_table_test,
     a_waiter_released_by_a_key_does_not_wait_for_it_again) {
  rendezvous_table table;
  EXPECT_FALSE(table.wait({"a", "b"}, 1));
  table.set("a", "");
  table.erase("a");
  EXPECT_THAT(table.set("b", ""), ElementsAre(1));
}

TEST(rendezvous_table_test, an_id_that_waits_already_starts_over) {
  rendezvous_table table;
  EXPECT_FALSE(table.wait({"a"}, 1));
  EXPECT_FALSE(table.wait({"b"}, 1));
  EXPECT_THAT(table.set("a", ""), IsEmpty());
  EXPECT_THAT(table.set("b", ""), ElementsAre(1));
}

TEST(rendezvous_table_test, replaces_only_the_expected_value) {
  rendezvous_table table;
  EXPECT_EQ(table.compare_set("k", "x", "1").value, "");
  EXPECT_EQ(table.find("k"), nullptr);
  EXPECT_EQ(table.compare_set("k", "", "1").value, "1");
  EXPECT_EQ(table.compare_set("k", "", "2").value, "1");
  EXPECT_EQ(table.compare_set("k", "1", "2").value, "2");
  EXPECT_EQ(*table.find("k"), "2");
}

// Every waiter is released exactly once, by the call that brings the last of
// its keys, whatever the order.
TEST(rendezvous_table_test, loses_no_waiter_over_random_calls) {
  std::mt19937 random{11};
  rendezvous_table table;
  std::map<std::uint64_t, std::set<std::string>> model;
  std::set<std::string> there;
  std::uint64_t releases = 0;
  auto key = [&] { return std::to_string(random() % 12); };
  for (std::uint64_t step = 0; step < 20000; ++step) {
    switch (random() % 4) {
      case 0: {
        std::vector<std::string> keys{key(), key(), key()};
        std::set<std::string> lacking;
        for (auto& x : keys)
          if (!there.contains(x))
            lacking.insert(x);
        ASSERT_EQ(table.wait(keys, step), lacking.empty());
        if (!lacking.empty())
          model[step] = lacking;
        break;
      }
      case 1: {
        auto gone = key();
        ASSERT_EQ(table.erase(gone), there.erase(gone) == 1);
        break;
      }
      default: {
        auto made = key();
        there.insert(made);
        std::vector<std::uint64_t> released;
        for (auto& [waiter, lacking] : model)
          if (lacking.erase(made) != 0 && lacking.empty())
            released.push_back(waiter);
        for (auto waiter : released)
          model.erase(waiter);
        releases += released.size();
        ASSERT_EQ(table.set(made, "v"), released);
      }
    }
  }
  EXPECT_GT(releases, 1000u);
}

} // namespace
} // namespace troupe::internal
