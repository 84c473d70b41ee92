#include "troupe/runtime/environment.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {

TEST(environment_test, names_the_variable_that_was_meant) {
  const char* environment[] = {"PATH=/bin", "TROUPE_CACHE=/tmp",
                               "TROUPE_SENDER_GRACE=3", "TROUPE_SENDERGRACE=3",
                               nullptr};
  EXPECT_EQ(misspelled_variable(environment),
            "the variable TROUPE_SENDERGRACE is not read; there is one called "
            "TROUPE_SENDER_GRACE");
  environment[3] = nullptr;
  EXPECT_EQ(misspelled_variable(environment), "");
}

} // namespace troupe::internal
