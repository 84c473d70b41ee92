#include "troupe/runtime/process/unshared_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/child.hpp"
#include "tests/support/idle_child.hpp"
#include "tests/support/sanitized.hpp"

namespace troupe::internal {
namespace {

TEST(unshared_fd_test, is_not_kept_open_by_a_forked_process) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  auto ends = socket_pair("no sockets").value();
  unshared_fd first{std::move(ends.first)};
  auto own = std::move(first);
  test::idle_child child;
  ASSERT_TRUE(child.is_there());
  own.reset();
  EXPECT_EQ(wait_until_ready(ends.second.get(), POLLIN,
                             std::chrono::steady_clock::now()
                               + std::chrono::seconds{10}),
            wait_outcome::ready);
  char byte;
  EXPECT_EQ(::recv(ends.second.get(), &byte, 1, MSG_DONTWAIT), 0);
}

// That of a lock lasts as long as the storage takes to open its file.
TEST(unshared_fd_test, is_made_and_closed_while_forks_wait) {
  auto ends = socket_pair("no sockets").value();
  const fork_pause pause;
  unshared_fd own{std::move(ends.first)};
  own.reset();
  char byte;
  EXPECT_EQ(::recv(ends.second.get(), &byte, 1, MSG_DONTWAIT), 0);
}

// A connection must not wait until the storage has opened a lock's file.
TEST(unshared_fd_test, a_pause_of_forks_waits_for_no_other) {
  const fork_pause first;
  std::thread{[] { const fork_pause second; }}.join();
}

TEST(unshared_fd_test, a_child_may_pause_and_fork) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  unshared_fd own{unique_fd{::open("/dev/zero", O_RDONLY | O_CLOEXEC)}};
  auto status = test::run_in_child([] {
    { const fork_pause pause; }
    ::_exit(test::run_in_child([] { const fork_pause pause; }) == 0 ? 0 : 1);
  });
  EXPECT_EQ(status, 0);
}

TEST(unshared_fd_test, one_that_is_released_ends_with_its_holder) {
  auto ends = socket_pair("no sockets").value();
  unshared_fd own{std::move(ends.first)};
  {
    const fork_pause pause;
    auto file = own.release(pause);
    EXPECT_TRUE(file);
    EXPECT_FALSE(own);
    char none;
    EXPECT_LT(::recv(ends.second.get(), &none, 1, MSG_DONTWAIT), 0);
  }
  char byte;
  EXPECT_EQ(::recv(ends.second.get(), &byte, 1, MSG_DONTWAIT), 0);
}

// Its number may be another file's later.
TEST(unshared_fd_test, one_that_was_given_away_is_an_ordinary_one_afterwards) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  unique_fd file{::open("/dev/zero", O_RDONLY | O_CLOEXEC)};
  auto number = file.get();
  auto child_reads = [number] {
    return test::run_in_child([number] {
             char byte;
             ::_exit(::read(number, &byte, 1) == 1 ? 0 : 1);
           })
           == 0;
  };
  {
    unshared_fd own{std::move(file)};
    EXPECT_EQ(own.get(), number);
    EXPECT_FALSE(child_reads());
    file.reset(own.give_away());
    EXPECT_FALSE(child_reads());
  }
  EXPECT_TRUE(child_reads());
}

} // namespace
} // namespace troupe::internal
