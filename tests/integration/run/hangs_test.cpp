// Ranks that others wait for: who is named, who is ended and who is not.

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <thread>

#include "tests/integration/run/run_test.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/trainers/rank_link.hpp"

namespace troupe::internal::test {

namespace {

using kind = rank_failure::kind_type;

/// A function that the program does not export.
[[gnu::noinline]] void sleeps_forever() {
  for (;;)
    pause();
}

/// How long a rank may be inactive in these tests.
constexpr auto short_limit = std::chrono::milliseconds{600};

train_options impatient(run_config config, int workers = 2) {
  train_options options{.scaling = {.num_workers = workers},
                        .run = std::move(config)};
  options.run.hang_timeout = short_limit;
  return options;
}

void stop_rank_1(train_context& context) {
  context.report({{"step", 0}});
  if (context.rank() == 1)
    raise(SIGSTOP);
  context.report({{"step", 1}});
}

void stop_rank_1_at_its_end(train_context& context) {
  context.report({{"step", 0}});
  if (context.rank() == 1)
    raise(SIGSTOP);
}

void stop_all_ranks(train_context& context) {
  context.report({{"step", 0}});
  raise(SIGSTOP);
}

void sleep_in_rank_0(train_context& context) {
  if (context.rank() == 0)
    sleeps_forever();
  context.barrier();
}

/// Rank 0 shows what the loop of a data plane shows that waits in its first
/// collective; rank 1 never comes to it, but reports.
void report_beside_a_collective(train_context& context) {
  if (context.rank() == 0) {
    auto shown = rank_access{context}.link().activity();
    shown->called = 1;
    shown->enter_collective();
    shown->awaited = 1;
    sleeps_forever();
  }
  context.report({{"done", 1}});
}

/// Uses CPU time of its process for several times the limit.
void compute() {
  timespec now{};
  do {
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while (std::chrono::seconds{now.tv_sec}
             + std::chrono::nanoseconds{now.tv_nsec}
           < 3 * short_limit);
}

void compute_in_rank_0(train_context& context) {
  if (context.rank() == 0)
    compute();
  context.barrier();
  context.report({{"done", 1}});
}

/// The program that works for rank 0, which waits for it.
void compute_in_a_child_of_rank_0(train_context& context) {
  if (context.rank() == 0) {
    auto child = fork();
    if (child == 0) {
      compute();
      _exit(0);
    }
    while (waitpid(child, nullptr, 0) != child)
      continue;
  }
  context.barrier();
  context.report({{"done", 1}});
}

/// A service on this host that takes a long time for what it is sent.
class slow_service {
public:
  /// Answers *bytes* bytes, one by one.
  explicit slow_service(int bytes) : bytes_(bytes) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* place = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    if (bind(listener_.get(), place, size) != 0
        || listen(listener_.get(), 1) != 0
        || getsockname(listener_.get(), place, &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    serving_ = std::thread{[this] { serve(); }};
  }

  ~slow_service() {
    shutdown(listener_.get(), SHUT_RDWR);
    serving_.join();
  }

  int port() const { return port_; }

  /// A connection to the service at *port*.
  static unique_fd call(int port) {
    unique_fd result{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<in_port_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(result.get(), reinterpret_cast<sockaddr*>(&address),
                sizeof(address))
        != 0)
      std::abort();
    return result;
  }

private:
  void serve() {
    unique_fd caller{accept(listener_.get(), nullptr, nullptr)};
    char byte = 0;
    for (int i = 0; i < bytes_; ++i) {
      poll(nullptr, 0, 100); // That is how slow it is.
      if (recv(caller.get(), &byte, 1, 0) <= 0
          || ::send(caller.get(), &byte, 1, MSG_NOSIGNAL) <= 0)
        return;
    }
    while (recv(caller.get(), &byte, 1, 0) > 0)
      continue;
  }

  int bytes_;
  int port_ = 0;
  unique_fd listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::thread serving_;
};

/// Rank 0 sends `plan.steps` bytes to the service at port `plan.step`, each
/// once the one before was answered, by a thread that it waits for.
void upload_in_a_thread_of_rank_0(train_context& context,
                                  const fault_plan& plan) {
  if (context.rank() == 0)
    std::thread{[&plan] {
      auto service = slow_service::call(plan.step);
      char byte = 0;
      for (int i = 0; i < plan.steps; ++i)
        if (::send(service.get(), "x", 1, MSG_NOSIGNAL) <= 0
            || recv(service.get(), &byte, 1, 0) <= 0)
          return;
    }}.join();
  context.barrier();
  context.report({{"done", 1}});
}

/// Rank 0 sleeps for good, and a thread of it looks now and then at a
/// connection that is open and silent. Rarely: a sanitizer makes work of every
/// look.
void look_at_a_silent_connection(train_context& context,
                                 const fault_plan& plan) {
  if (context.rank() == 0) {
    std::thread{[port = plan.step] {
      auto service = slow_service::call(port);
      for (pollfd readable{service.get(), POLLIN, 0};;)
        poll(&readable, 1, 5000);
    }}.detach();
    sleeps_forever();
  }
  context.barrier();
}

} // namespace

TEST_F(run_test, a_stopped_rank_that_others_wait_for_is_ended) {
  auto outcome =
    data_parallel_trainer{stop_rank_1, impatient(config(), 3)}.fit();
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("report 1: rank 1 is missing"), std::string::npos)
    << failure.what;
}

TEST_F(run_test, a_rank_that_is_stopped_after_its_last_report_is_ended) {
  auto outcome =
    data_parallel_trainer{stop_rank_1_at_its_end, impatient(config(), 3)}.fit();
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::timeout);
}

TEST_F(run_test, ranks_that_are_stopped_all_together_are_ended) {
  auto outcome =
    data_parallel_trainer{stop_all_ranks, impatient(config())}.fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::rank_failed) << outcome.error->message;
  for (auto& [rank, failure] : outcome.error->ranks)
    EXPECT_EQ(failure.kind, kind::timeout) << rank;
}

TEST_F(run_test, a_run_resumes_after_a_rank_that_hung) {
  auto options = impatient(config());
  options.run.failure.max_failures = 1;
  auto outcome = run({.action = "stop", .rank = 1, .step = 1}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  EXPECT_EQ(outcome.metrics.at("step"), metric_value{2});
}

TEST_F(run_test, a_rank_that_sleeps_forever_is_ended_and_shows_its_stack) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer holds signals back from waiting threads";
#endif
  auto outcome =
    data_parallel_trainer{sleep_in_rank_0, impatient(config())}.fit();
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("without CPU time or I/O"), std::string::npos)
    << failure.what;
  auto stacks = bytes_of(run_path() / "logs" / "rank_0.stacks");
  EXPECT_NE(stacks.find("sleeps_forever"), std::string::npos) << stacks;
  EXPECT_FALSE(fs::exists(run_path() / "logs" / "rank_1.stacks"));
  auto journal = bytes_of(run_path() / "journal.jsonl");
  EXPECT_NE(journal.find("logs/rank_0.stacks"), std::string::npos);
}

TEST_F(run_test, ranks_in_a_collective_and_in_a_report_end_with_both_named) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a thread of ThreadSanitizer keeps ranks from being idle";
#endif
  auto options = impatient(config());
  options.run.hang_timeout =
    std::chrono::seconds{30}; // Longer than the 5 s of this rule.
  auto outcome =
    data_parallel_trainer{report_beside_a_collective, options}.fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->message,
            "Ranks 0, 1: misuse: the ranks are in different calls: rank 0 in "
            "collective 1, rank 1 in report 0");
}

TEST_F(run_test, a_rank_that_computes_is_never_ended_for_it) {
  auto outcome =
    data_parallel_trainer{compute_in_rank_0, impatient(config())}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 1u);
}

TEST_F(run_test, a_rank_whose_thread_uploads_is_never_ended_for_it) {
  auto options = impatient(config());
  options.run.hang_timeout = std::chrono::seconds{1};
  constexpr int bytes = 30; // for three times the limit
  slow_service service{bytes};
  auto outcome =
    data_parallel_trainer{upload_in_a_thread_of_rank_0,
                          fault_plan{.step = service.port(), .steps = bytes},
                          options}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 1u);
}

TEST_F(run_test, a_rank_that_only_looks_at_its_connections_is_ended) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own thread is at work";
#endif
  slow_service service{0};
  auto outcome = data_parallel_trainer{look_at_a_silent_connection,
                                       fault_plan{.step = service.port()},
                                       impatient(config())}
                   .fit();
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("without CPU time or I/O"), std::string::npos)
    << failure.what;
}

TEST_F(run_test, a_rank_whose_child_computes_is_never_ended_for_it) {
  auto outcome =
    data_parallel_trainer{compute_in_a_child_of_rank_0, impatient(config())}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 1u);
}

} // namespace troupe::internal::test
