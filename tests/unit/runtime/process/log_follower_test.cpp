#include "troupe/runtime/process/log_follower.hpp"

#include <atomic>
#include <fstream>
#include <future>
#include <stdexcept>

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {
namespace {

class log_follower_test : public testing::Test {
protected:
  void append(std::string_view text) {
    std::ofstream{path, std::ios::app} << text;
  }

  log_follower follow() {
    return log_follower::start(path,
                               [this](std::string_view text) {
                                 shown += text;
                                 if (shown.ends_with('\n')
                                     && !was_shown.exchange(true))
                                   line.set_value();
                               })
      .value();
  }

  temporary_folder folder;
  std::string path = (folder.path() / "rank_0.log").string();
  std::string shown;
  std::promise<void> line;
  std::atomic<bool> was_shown = false;
};

TEST_F(log_follower_test, shows_what_is_appended_but_not_what_was_there) {
  append("an earlier attempt\n");
  {
    auto follower = follow();
    append("step 1\n");
    line.get_future().wait(); // While it follows.
    append("step 2\n");
  }
  EXPECT_EQ(shown, "step 1\nstep 2\n");
}

TEST_F(log_follower_test, a_file_may_come_later) {
  {
    auto follower = follow();
    append("hello");
  }
  EXPECT_EQ(shown, "hello");
}

TEST_F(log_follower_test, says_how_much_is_in_the_log_only) {
  append(std::string(log_follower::max_behind + 9, 'x') + "end\n");
  auto other = folder / "other";
  fs::rename(path, other);
  {
    auto follower = follow();
    fs::rename(other, path); // At once, however long the writing took.
  }
  EXPECT_THAT(shown,
              testing::StartsWith("\n[13 bytes more are in the log only]\nx"));
  EXPECT_THAT(shown, testing::EndsWith("xend\n"));
}

TEST_F(log_follower_test, a_sink_that_throws_is_not_called_again) {
  int calls = 0;
  {
    auto follower = log_follower::start(path, [&](std::string_view) {
                      ++calls;
                      throw std::runtime_error{"no console"};
                    }).value();
    append(std::string(40'000, 'x'));
  }
  EXPECT_EQ(calls, 1);
}

} // namespace
} // namespace troupe::internal::test
