#include "troupe/callbacks/wandb/wandb_upload.hpp"

#include <csignal>

#include <gtest/gtest.h>
#include <poll.h>

#include "tests/support/child.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::temporary_folder;
using clock = std::chrono::steady_clock;

bool ends_soon(pid_t pid) {
  auto process = open_pidfd(pid);
  pollfd x{process.get(), POLLIN, 0};
  return !process || ::poll(&x, 1, 10'000) > 0;
}

// Waits for the first line that the child writes.
std::string first_line(const fs::path& path) {
  for (int i = 0; i < 1000; ++i) {
    auto text = bytes_of(path);
    if (auto end = text.find('\n'); end != text.npos)
      return text.substr(0, end);
    ::poll(nullptr, 0, 10);
  }
  return {};
}

TEST(child_program_test, logs_output_and_changes_the_environment) {
  temporary_folder folder;
  ::setenv("TROUPE_TEST_A", "a", 1);
  ::setenv("TROUPE_TEST_B", "b", 1);
  auto child = child_program::start(
    {find_program("sh").string(), "-c",
     "echo \"$TROUPE_TEST_A,$TROUPE_TEST_B,$TROUPE_TEST_C\"; echo bad >&2"},
    {{"TROUPE_TEST_A", ""}, {"TROUPE_TEST_C", "c"}}, folder / "log");
  ASSERT_TRUE(child);
  wait_time time;
  EXPECT_TRUE(child->wait(time, 60s, {}));
  EXPECT_EQ(bytes_of(folder / "log"), ",b,c\nbad\n");
  ::unsetenv("TROUPE_TEST_A");
  ::unsetenv("TROUPE_TEST_B");
}

TEST(child_program_test, stops_waiting_when_asked_to) {
  temporary_folder folder;
  auto child = child_program::start({find_program("sleep").string(), "1000"},
                                    {}, folder / "log");
  ASSERT_TRUE(child);
  std::stop_source stop;
  stop.request_stop();
  wait_time time;
  EXPECT_FALSE(child->wait(time, 1000s, stop.get_token()));
  EXPECT_FALSE(child->wait(time, 0s, {}));
}

TEST(child_program_test, ends_children_in_other_sessions_too) {
  temporary_folder folder;
  pid_t grandchild = 0;
  {
    auto child =
      child_program::start({find_program("sh").string(), "-c",
                            "trap '' TERM; setsid sleep 1000 & echo $!; wait"},
                           {}, folder / "log");
    ASSERT_TRUE(child);
    grandchild = std::stoi("0" + first_line(folder / "log"));
    ASSERT_GT(grandchild, 0);
  }
  EXPECT_TRUE(ends_soon(grandchild));
}

TEST(child_program_test, finds_programs_as_a_shell_does) {
  EXPECT_TRUE(find_program("sh").is_absolute());
  EXPECT_TRUE(find_program("no-such-program").empty());
  EXPECT_TRUE(find_program("/etc/passwd").empty()) << "it cannot be run";
  EXPECT_EQ(find_program(find_program("sh").string()), find_program("sh"));
}

TEST(child_program_test, finds_programs_without_a_current_folder) {
  EXPECT_TRUE(test::holds_without_current_folder(
    [] { return find_program("sh").is_absolute(); }));
}

} // namespace
} // namespace troupe::internal
