#include "troupe/runtime/environment.hpp"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "tests/support/environment_guard.hpp"

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

TEST(environment_test, begins_paths_at_the_home_folder) {
  test::environment_guard guard{{{"HOME", "/home/me"}}};
  EXPECT_EQ(expanded("~", "x").value(), "/home/me");
  EXPECT_EQ(expanded("~/a/b", "x").value(), "/home/me/a/b");
  EXPECT_EQ(expanded("a/~", "x").value(), "a/~");
  auto other = expanded("~you/a", "run.storage_path");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ec::invalid_config);
  EXPECT_EQ(other.error().message.find("run.storage_path is '~you/a'"), 0u);
}

TEST(environment_test, takes_an_empty_home_for_none) {
  test::environment_guard guard{{{"HOME", ""}}};
  auto user = ::getpwuid(::geteuid());
  if (!user || !user->pw_dir || !*user->pw_dir)
    GTEST_SKIP() << "the user has no entry with a home folder";
  EXPECT_EQ(home_folder(), fs::path{user->pw_dir});
}

} // namespace troupe::internal
