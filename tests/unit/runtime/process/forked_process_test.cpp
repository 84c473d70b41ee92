#include "troupe/runtime/process/forked_process.hpp"

#include <gtest/gtest.h>

#include "tests/support/child.hpp"

namespace troupe::internal {
namespace {

using test::run_in_child;

TEST(forked_process_test, says_what_it_left_and_ends) {
  auto owner = ::getpid();
  leave_if_forked(owner, "the test", {ec::rank_failed, "of the owner"});
  for (auto failed : {false, true}) {
    ::testing::internal::CaptureStderr();
    auto status = run_in_child([&] {
      leave_if_forked(owner, "the loop",
                      failed ? error{ec::rank_failed, "it fell"} : error{});
      ::_exit(2);
    });
    auto text = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), failed ? 1 : 0);
    EXPECT_NE(text.find("which process " + std::to_string(owner)
                        + " forked, left the loop and ends"),
              std::string::npos)
      << text;
    EXPECT_EQ(text.find("it fell") != std::string::npos, failed) << text;
  }
}

TEST(forked_process_test, only_the_owner_deletes) {
  struct ends_process {
    explicit ends_process(int code) : code(code) {}
    ~ends_process() {
      if (code != 0)
        ::_exit(code);
    }
    int code;
  };
  owned_ptr<ends_process> x{new ends_process{3}};
  EXPECT_EQ(WEXITSTATUS(run_in_child([&] { x.reset(); })), 0);
  EXPECT_EQ(WEXITSTATUS(run_in_child(
              [&] { owned_ptr<ends_process> mine{new ends_process{4}}; })),
            4);
  x->code = 0;
}

} // namespace
} // namespace troupe::internal
