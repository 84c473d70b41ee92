#include "troupe/runtime/process/threads.hpp"

#include <csignal>
#include <future>
#include <new>

#include <gtest/gtest.h>

namespace troupe::internal::test {
namespace {

/// Whether SIGUSR1 is blocked in the calling thread.
bool blocks_signals() {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, SIGUSR1) == 1;
}

TEST(threads_test, only_code_of_the_user_runs_signal_handlers) {
  auto ours = false, of_the_user = true;
  start_thread([&] { ours = blocks_signals(); })->join();
  start_user_thread([&] { of_the_user = blocks_signals(); })->join();
  EXPECT_TRUE(ours);
  EXPECT_FALSE(of_the_user);
  EXPECT_FALSE(blocks_signals());
}

TEST(sync_thread_test, a_call_that_throws_does_not_stop_the_next_one) {
  std::promise<void> second;
  int calls = 0;
  sync_thread thread;
  ASSERT_TRUE(thread.start([&] {
    if (++calls == 1)
      throw std::bad_alloc{};
    second.set_value();
    return false;
  }));
  second.get_future().wait();
}

} // namespace
} // namespace troupe::internal::test
