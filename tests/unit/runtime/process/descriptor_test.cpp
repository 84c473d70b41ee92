#include "troupe/runtime/process/descriptor.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/few_descriptors.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

using clock_type = std::chrono::steady_clock;

constexpr auto no_deadline = clock_type::time_point::max();

std::atomic<int> signals_handled = 0;

void count_signal(int) {
  ++signals_handled;
}

/// While it exists, SIGUSR1 is counted and does not restart system calls.
class counted_signals {
public:
  counted_signals() {
    signals_handled = 0;
    struct sigaction ours {};
    ours.sa_handler = count_signal;
    ::sigaction(SIGUSR1, &ours, &before_);
  }

  ~counted_signals() { ::sigaction(SIGUSR1, &before_, nullptr); }

  counted_signals(const counted_signals&) = delete;
  counted_signals& operator=(const counted_signals&) = delete;

private:
  struct sigaction before_ {};
};

} // namespace

TEST(descriptor_test, names_the_process_and_user_at_the_other_end) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  unique_fd one{ends[0]};
  unique_fd other{ends[1]};
  auto peer = peer_of(one.get()).value();
  EXPECT_EQ(peer.pid, ::getpid());
  EXPECT_EQ(peer.uid, ::getuid());
}

TEST(descriptor_test, fails_for_anything_else) {
  auto pipe = test::make_pipe();
  EXPECT_EQ(peer_of(pipe.reader.get()).error().code, ec::protocol);
  unique_fd unconnected{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  EXPECT_EQ(peer_of(unconnected.get()).error().code, ec::protocol);
}

TEST(wait_until_ready_test, shows_which_descriptors_are_ready) {
  auto quiet = test::make_pipe();
  auto [one, other] = socket_pair("pair").value();
  ASSERT_EQ(::write(other.get(), "x", 1), 1);
  std::vector<pollfd> waits{
    {quiet.reader.get(), POLLIN, 0}, {-1, POLLIN, 0}, {one.get(), POLLIN, 0}};
  EXPECT_EQ(wait_until_ready(waits, no_deadline), wait_outcome::ready);
  EXPECT_EQ(waits[0].revents, 0);
  EXPECT_EQ(waits[1].revents, 0);
  EXPECT_EQ(waits[2].revents, POLLIN);
}

TEST(wait_until_ready_test, a_hang_up_ends_the_wait) {
  auto pipe = test::make_pipe();
  pipe.writer.reset();
  EXPECT_EQ(wait_until_ready(pipe.reader.get(), POLLIN, no_deadline),
            wait_outcome::ready);
}

TEST(wait_until_ready_test, is_late_once_the_deadline_has_passed) {
  auto pipe = test::make_pipe();
  auto deadline = clock_type::now() + std::chrono::milliseconds{1};
  EXPECT_EQ(wait_until_ready(pipe.reader.get(), POLLIN, deadline),
            wait_outcome::late);
  EXPECT_GE(clock_type::now(), deadline);
}

TEST(wait_until_ready_test, looks_although_the_deadline_has_passed) {
  auto pipe = test::make_pipe();
  auto passed = clock_type::now() - std::chrono::hours{1};
  EXPECT_EQ(wait_until_ready(pipe.reader.get(), POLLIN, passed),
            wait_outcome::late);
  ASSERT_EQ(::write(pipe.writer.get(), "x", 1), 1);
  EXPECT_EQ(wait_until_ready(pipe.reader.get(), POLLIN, passed),
            wait_outcome::ready);
}

TEST(wait_until_ready_test, waits_on_after_signals) {
  counted_signals signals;
  auto pipe = test::make_pipe();
  std::thread sender{[&pipe, waiting = ::pthread_self()] {
    for (int sent = 1; sent <= 100; ++sent) {
      ::pthread_kill(waiting, SIGUSR1);
      while (signals_handled < sent)
        std::this_thread::yield();
    }
    (void) !::write(pipe.writer.get(), "x", 1);
  }};
  auto outcome = wait_until_ready(pipe.reader.get(), POLLIN, no_deadline);
  sender.join();
  EXPECT_EQ(outcome, wait_outcome::ready);
  EXPECT_EQ(signals_handled, 100);
}

TEST(wait_until_ready_test, fails_if_the_system_refuses) {
  std::vector<pollfd> waits(1000, pollfd{-1, POLLIN, 0});
  test::few_descriptors few; // More than a process may have open.
  EXPECT_EQ(wait_until_ready(waits, no_deadline), wait_outcome::failed);
  EXPECT_EQ(errno, EINVAL);
}
