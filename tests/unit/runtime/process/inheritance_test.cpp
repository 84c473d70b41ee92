#include "troupe/runtime/process/inheritance.hpp"

#include <sys/stat.h>

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/environment_guard.hpp"
#include "tests/support/few_descriptors.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(inheritance_test, an_environment_differs_by_what_was_set_and_removed) {
  EXPECT_EQ(changes_between({"A=1", "B=2", "C=3"}, {"D=4", "A=1", "B="}),
            (environment_changes{{{"B", ""}, {"D", "4"}}, {"C"}}));
  EXPECT_EQ(changes_between({"A=1", "B=2"}, {"B=2", "A=1"}),
            environment_changes{});
}

TEST(inheritance_test, the_first_of_two_values_counts) {
  EXPECT_EQ(changes_between({"A=1", "A=2"}, {"A=1"}), environment_changes{});
  EXPECT_THAT(changes_between({"A=1"}, {"A=2", "A=1"}).set,
              ElementsAre(Pair("A", "2")));
}

TEST(inheritance_test, leaves_out_what_has_no_sign) {
  EXPECT_EQ(changes_between({}, {"no sign", "A=b=c"}),
            (environment_changes{{{"A", "b=c"}}, {}}));
}

TEST(inheritance_test, ranks_inherit_no_secrets) {
  auto before = own_variables();
  environment_guard set{{{"TROUPE_TEST_COLOR", "green"},
                         {"TROUPE_TEST_TOKEN", "planted"},
                         {"TROUPE_TEST_URL", "http://me:planted@host"},
                         {"WANDB_BASE_URL", "http://host"}}};
  auto now = inherit(before).value();
  EXPECT_THAT(now->variables.set,
              ElementsAre(Pair("TROUPE_TEST_COLOR", "green")));
  EXPECT_TRUE(now->has("TROUPE_TEST_TOKEN"));
  EXPECT_TRUE(now->has("TROUPE_TEST_COLOR"));
  EXPECT_FALSE(now->has("TROUPE_TEST_COL"));
}

TEST(inheritance_test, ranks_keep_no_earlier_value_of_what_became_a_secret) {
  auto before = own_variables();
  before.push_back("TROUPE_TEST_URL=http://host");
  environment_guard set{{{"TROUPE_TEST_URL", "http://me:planted@host"}}};
  auto now = inherit(before).value();
  EXPECT_THAT(now->variables.set, IsEmpty());
  EXPECT_THAT(now->variables.removed, ElementsAre("TROUPE_TEST_URL"));
}

TEST(inheritance_test, ranks_inherit_the_mask_of_new_files) {
  auto before = ::umask(027);
  auto now = inherit({}).value();
  ::umask(before);
  EXPECT_EQ(now->umask, mode_t{027});
}

TEST(inheritance_test, needs_one_descriptor) {
  few_descriptors limit{1};
  auto now = inherit({}).value();
  EXPECT_TRUE(now->folder);
  EXPECT_TRUE(now->umask);
  auto none = inherit({});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("the current folder"));
}

} // namespace troupe::internal::test
