#include "troupe/runtime/process/interrupt_watch.hpp"

#include <atomic>
#include <csignal>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/sanitized.hpp"
#include "tests/unit/runtime/process/process_modes.hpp"
#include "tests/unit/runtime/process/rank_commands.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"
#include "troupe/runtime/process/spawner.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

bool is_readable(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

void (*handler_of(int signal))(int) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

/// The signal of which a process dies that does *what*; 0: none.
template <class Function>
int killed_by(Function what) {
  auto child = ::fork();
  if (child == 0) {
    what();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

volatile std::sig_atomic_t seen_by_own_handler = 0;

void own_handler(int) {
  seen_by_own_handler = seen_by_own_handler + 1;
}

} // namespace

TEST(signal_count_test, repetitions_of_a_signal_do_not_count) {
  constexpr auto echo = signal_count::echo_ns;
  signal_count count;
  for (std::int64_t at : {5, 6, 7, 8})
    EXPECT_EQ(count.add(at), 1);
  EXPECT_EQ(count.add(5 + echo - 1), 1);
  EXPECT_EQ(count.add(5 + echo), 2);
  EXPECT_EQ(count.add(6 + echo), 2);
  EXPECT_EQ(count.add(5 + 3 * echo), 3);
  count.reset();
  EXPECT_EQ(count.add(5 + 3 * echo), 1);
}

TEST(signal_count_test, three_key_presses_in_a_second_count) {
  signal_count count;
  EXPECT_EQ(count.add(0), 1);
  EXPECT_EQ(count.add(400'000'000), 2);
  EXPECT_EQ(count.add(800'000'000), 3);
}

TEST(interrupt_watch_test, reports_the_first_signal_and_ignores_the_second) {
  interrupt_watch watch;
  EXPECT_FALSE(is_readable(watch.fd()));
  EXPECT_EQ(watch.asking_signal(), 0);
  ::raise(SIGINT);
  EXPECT_TRUE(is_readable(watch.fd()));
  ::raise(SIGTERM);
  EXPECT_EQ(watch.asking_signal(), SIGINT);
}

TEST(interrupt_watch_test, has_counted_each_signal_that_it_shows) {
  sigset_t interrupts;
  ::sigemptyset(&interrupts);
  ::sigaddset(&interrupts, SIGINT);
  for (int round = 0; round < 300; ++round) {
    interrupt_watch watch;
    std::atomic<bool> looks = false;
    std::thread reader{[&] {
      ::pthread_sigmask(SIG_BLOCK, &interrupts, nullptr);
      looks = true;
      while (watch.asked() == interrupt::none)
        ;
      EXPECT_EQ(watch.count(), 1);
    }};
    while (!looks)
      std::this_thread::yield();
    ::raise(SIGINT);
    reader.join();
  }
}

TEST(interrupt_watch_test, distinguishes_a_stop_from_a_preemption) {
  interrupt_watch watch{{SIGTERM, SIGUSR1}};
  EXPECT_EQ(watch.asked(), interrupt::none);
  ::raise(SIGUSR1);
  EXPECT_TRUE(is_readable(watch.fd()));
  EXPECT_EQ(watch.asked(), interrupt::preempt);
  EXPECT_EQ(watch.asking_signal(), SIGUSR1);
  ::raise(SIGINT);
  EXPECT_EQ(watch.asked(), interrupt::stop);
  EXPECT_EQ(watch.asking_signal(), SIGINT);
  EXPECT_EQ(watch.count(), 1); // The second one is an echo.
}

TEST(interrupt_watch_test, what_does_not_preempt_stops) {
  for (auto signal : {SIGINT, SIGTERM, SIGHUP}) {
    interrupt_watch watch;
    ::raise(signal);
    EXPECT_EQ(watch.asked(), interrupt::stop);
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_DFL);
}

TEST(interrupt_watch_test, each_watch_has_its_own_idea_of_a_preemption) {
  interrupt_watch stops;
  interrupt_watch preempts{{SIGTERM, SIGUSR2}};
  ::raise(SIGTERM);
  EXPECT_EQ(stops.asked(), interrupt::stop);
  EXPECT_EQ(preempts.asked(), interrupt::preempt);
  EXPECT_NE(handler_of(SIGUSR2), SIG_DFL);
}

TEST(interrupt_watch_test, leaves_a_hang_up_that_is_ignored_alone) {
  ::signal(SIGHUP, SIG_IGN); // nohup
  {
    interrupt_watch watch{{SIGHUP}};
    EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
  ::signal(SIGHUP, SIG_DFL);
}

TEST(interrupt_watch_test, survives_a_sender_that_repeats_its_signal) {
  auto program = test::start_program("burst_of_interrupts");
  auto status = program.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(interrupt_watch_test, a_process_that_was_forked_off_dies_of_signals) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  interrupt_watch watch{{SIGUSR1}};
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    EXPECT_EQ(test::end_of_child(signal), signal);
  EXPECT_FALSE(is_readable(watch.fd()));
}

TEST(interrupt_watch_test, a_process_that_was_forked_off_may_watch_as_well) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  interrupt_watch watch;
  auto child = ::fork();
  if (child == 0) {
    interrupt_watch own;
    ::raise(SIGTERM);
    ::_exit(is_readable(own.fd()) && own.asked() == interrupt::stop ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(is_readable(watch.fd()));
}

TEST(interrupt_watch_test, a_process_that_a_rank_forked_off_dies_of_signals) {
  for (int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    auto end = test::run_rank(
      **spawner(), test::command("end_child " + std::to_string(signal)));
    EXPECT_EQ(end.code, signal);
  }
}

TEST(interrupt_watch_test, raises_again_what_came_too_late) {
  EXPECT_EQ(killed_by([] {
              interrupt_watch watch;
              ::raise(SIGTERM);
              watch.answer(interrupt::none);
            }),
            SIGTERM);
  EXPECT_EQ(killed_by([] {
              interrupt_watch watch{{SIGTERM}};
              ::raise(SIGTERM);
              watch.answer(interrupt::preempt);
              ::raise(SIGINT);
            }),
            SIGINT);
}

TEST(interrupt_watch_test, raises_no_signal_again_that_was_handled) {
  EXPECT_EQ(killed_by([] {
              interrupt_watch watch{{SIGTERM}};
              ::raise(SIGTERM);
              watch.answer(interrupt::preempt);
            }),
            0);
  EXPECT_EQ(killed_by([] {
              interrupt_watch watch{{SIGTERM}};
              interrupt_watch other;
              ::raise(SIGTERM);
              ::raise(SIGINT);
              watch.answer(interrupt::stop);
              other.answer(interrupt::none);
            }),
            0);
}

TEST(interrupt_watch_test, leaves_at_once_at_the_third_signal) {
  auto program = test::start_program("three_interrupts");
  auto status = program.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

TEST(interrupt_watch_test, sees_signals_until_the_program_has_ended) {
  auto program = test::start_program("use_resources_at_exit");
  EXPECT_EQ(test::read_all(program.output.get()), "1 core, 1 signal\n");
  EXPECT_EQ(program.wait(), 0);
}

// A handler that another thread entered before the watch ended may still write.
TEST(interrupt_watch_test, leaves_no_number_of_a_file_to_a_late_handler) {
  auto events = [] {
    std::set<int> result;
    char target[64];
    for (int fd = 0; fd < 1024; ++fd) {
      auto link = "/proc/self/fd/" + std::to_string(fd);
      auto size = ::readlink(link.c_str(), target, sizeof(target));
      if (size > 0 && std::string(target, size) == "anon_inode:[eventfd]")
        result.insert(fd);
    }
    return result;
  };
  std::set<int> of_watch;
  int own = -1;
  {
    interrupt_watch watch;
    of_watch = events();
    own = watch.fd();
    ::raise(SIGINT);
    EXPECT_TRUE(is_readable(own));
    watch.answer(interrupt::stop);
  }
  of_watch.erase(own);
  EXPECT_EQ(events(), of_watch);
  interrupt_watch next;
  EXPECT_FALSE(is_readable(next.fd()));
}

TEST(interrupt_watch_test, starts_again_and_restores_the_handlers) {
  for (int i = 0; i < 2; ++i) {
    interrupt_watch watch;
    EXPECT_EQ(watch.asking_signal(), 0);
    ::raise(SIGINT);
    EXPECT_EQ(watch.asking_signal(), SIGINT);
  }
  EXPECT_EQ(handler_of(SIGINT), SIG_DFL);
  EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
}

TEST(interrupt_watch_test, leaves_a_handler_of_the_program_alone) {
  ::signal(SIGINT, own_handler);
  {
    interrupt_watch watch;
    ::raise(SIGINT);
    EXPECT_EQ(seen_by_own_handler, 1);
    EXPECT_FALSE(is_readable(watch.fd()));
  }
  EXPECT_EQ(handler_of(SIGINT), own_handler);
  ::signal(SIGINT, SIG_DFL);
}

TEST(interrupt_watch_test, shares_signals_between_watches) {
  auto first = std::make_unique<interrupt_watch>();
  std::unique_ptr<interrupt_watch> second;
  std::thread{[&] { second = std::make_unique<interrupt_watch>(); }}.join();
  first.reset();
  ::raise(SIGTERM);
  EXPECT_TRUE(is_readable(second->fd()));
  second.reset();
  EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
}

TEST(interrupt_watch_test, watches_nothing_on_a_thread_of_a_service) {
  std::thread{[] {
    interrupt_watch watch;
    EXPECT_EQ(watch.fd(), -1);
    EXPECT_EQ(handler_of(SIGINT), SIG_DFL);
  }}.join();
}
