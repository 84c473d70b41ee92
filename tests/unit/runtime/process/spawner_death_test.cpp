#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/no_new_threads.hpp"
#include "tests/unit/runtime/process/process_modes.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/spawner.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::HasSubstr;

namespace {

std::vector<pid_t> read_pids(int fd) {
  std::istringstream line{read_line(fd)};
  std::vector<pid_t> result;
  for (pid_t pid = 0; line >> pid;)
    result.push_back(pid);
  return result;
}

/// Returns once the process has ended; the test's time limit is the bound.
void wait_for_end(const unique_fd& process) {
  pollfd wait{process.get(), POLLIN, 0};
  while (::poll(&wait, 1, -1) < 1)
    continue;
}

/// A child with the number *pid* that leads a session; -1: this host lets no
/// process choose a number.
pid_t start_stranger(pid_t pid) {
  auto ready = make_pipe();
  clone_args how{};
  how.exit_signal = SIGCHLD;
  how.set_tid = reinterpret_cast<std::uintptr_t>(&pid);
  how.set_tid_size = 1;
  auto child = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof(how)));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
    (void) !::write(ready.writer.get(), "\n", 1);
    for (;;)
      ::pause();
  }
  ready.writer.reset();
  if (child > 0)
    read_line(ready.reader.get());
  return child;
}

/// Kills a program with two ranks and waits until nothing is left of it.
void kill_program_and_watch(bool stop_spawner_first) {
  auto program = start_program("hold_ranks");
  auto pids = read_pids(program.output.get());
  ASSERT_EQ(pids.size(), 3u);
  std::vector<unique_fd> processes;
  for (auto pid : pids)
    processes.push_back(open_pidfd(pid));
  if (stop_spawner_first)
    ::kill(pids[0], SIGSTOP);
  ::kill(program.pid, SIGKILL);
  EXPECT_EQ(WTERMSIG(program.wait()), SIGKILL);
  for (auto& process : processes)
    wait_for_end(process);
  // No process keeps a reader of the program's output waiting.
  EXPECT_EQ(read_all(program.output.get()), "");
}

started_rank start_waiting(spawner_connection& client, unique_fd& writer) {
  auto pipe = make_pipe();
  writer = std::move(pipe.writer);
  auto request = command("wait");
  request.descriptors.push_back(std::move(pipe.reader));
  return start_rank(client, std::move(request));
}

} // namespace

TEST(spawner_death_test, nothing_is_left_of_a_program_killed_with_signal_9) {
  kill_program_and_watch(false);
}

TEST(spawner_death_test, nothing_is_left_even_if_the_spawner_was_stopped) {
  kill_program_and_watch(true);
}

// The kernel gives the status of a traced process to its debugger first.
TEST(spawner_death_test, waits_for_no_debugger_when_its_program_dies) {
  auto program = start_program("hold_traced");
  auto pids = read_pids(program.output.get());
  ASSERT_EQ(pids.size(), 3u);
  auto spawner = open_pidfd(pids[0]);
  auto child = open_pidfd(pids[2]);
  auto is_tracing = ::ptrace(PTRACE_SEIZE, pids[1], 0, 0) == 0;
  ::kill(program.pid, SIGKILL);
  program.wait();
  wait_for_end(child);
  wait_for_end(spawner);
  if (!is_tracing)
    GTEST_SKIP() << "this host lets no process trace another";
  ::waitpid(pids[1], nullptr, __WALL);
}

TEST(spawner_death_test, reports_the_end_of_a_rank_that_a_debugger_holds) {
  spawner_connection client{exec_spawner().value()};
  auto wait = make_pipe();
  auto said = make_pipe();
  auto request = command("wait_traced");
  request.descriptors.push_back(std::move(wait.reader));
  request.descriptors.push_back(std::move(said.writer));
  auto rank = start_rank(client, std::move(request));
  read_line(said.reader.get());
  auto pid = rank.pid.get().value();
  auto first = spawner_of(client);
  auto is_tracing = ::ptrace(PTRACE_SEIZE, pid, 0, 0) == 0;
  client.kill(rank.id, SIGKILL);
  auto end = rank.end.get();
  if (!is_tracing)
    GTEST_SKIP() << "this host lets no process trace another";
  EXPECT_EQ(end.how, process_exit::kind::lost);
  EXPECT_EQ(run_rank(client, command("return 6")).code, 6);
  EXPECT_EQ(spawner_of(client), first);
  ::waitpid(pid, nullptr, __WALL);
}

TEST(spawner_death_test, ranks_end_with_a_program_that_exits) {
  auto program = start_program("leave_ranks");
  auto pids = read_pids(program.output.get());
  ASSERT_EQ(pids.size(), 1u);
  EXPECT_EQ(program.wait(), 0);
  // The program waited for its ranks: the pid is free or reused.
  EXPECT_EQ(read_all(program.output.get()), "");
}

TEST(spawner_death_test, is_not_made_without_a_descriptor_that_watches_it) {
  auto program = start_program("two_descriptors");
  auto status = program.wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EXIT_FAILURE);
}

TEST(spawner_death_test, outlives_the_static_objects_that_end_its_ranks) {
  auto program = start_program("leave_rank_to_static_owner");
  EXPECT_EQ(read_all(program.output.get()), "killed by signal 9 (SIGKILL)\n");
  EXPECT_EQ(program.wait(), 0);
}

TEST(spawner_death_test, fails_requests_that_come_after_its_end) {
  spawner_connection client{exec_spawner().value()};
  client.close();
  auto rank = start_rank(client, command("return 0"));
  EXPECT_FALSE(rank.pid.get());
  EXPECT_TRUE(client.has_ended(rank.id));
}

TEST(spawner_death_test, reports_ranks_of_a_killed_spawner_and_starts_another) {
  spawner_connection client{exec_spawner().value()};
  unique_fd writer;
  auto rank = start_waiting(client, writer);
  auto process = open_pidfd(rank.pid.get().value());
  auto first = spawner_of(client);
  ::kill(first, SIGKILL);
  auto end = rank.end.get();
  EXPECT_EQ(end.how, process_exit::kind::lost);
  EXPECT_EQ(to_string(end), "ended with the spawner, which was killed by "
                            "signal 9 (SIGKILL)");
  wait_for_end(process);
  EXPECT_EQ(run_rank(client, command("return 6")).code, 6);
  EXPECT_NE(spawner_of(client), first);
}

TEST(spawner_death_test, a_spawner_ends_by_itself_at_bytes_of_someone_else) {
  auto link = exec_spawner().value();
  // Its first bytes would ask for more memory than there is.
  std::string text(4096, '\xee');
  ASSERT_EQ(::write(link.socket.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  EXPECT_EQ(reap(link, -1), "exited with code 0");
}

TEST(spawner_death_test, ends_though_a_child_of_its_program_has_its_socket) {
  auto link = exec_spawner().value();
  auto wait = make_pipe();
  auto child = ::fork();
  if (child == 0) {
    wait.writer.reset();
    ::_exit(read_line(wait.reader.get()).empty() ? 0 : 1);
  }
  EXPECT_EQ(dismiss(link, 2000), "exited with code 0");
  wait.writer.reset();
  ::waitpid(child, nullptr, 0);
}

TEST(spawner_death_test, spares_a_stranger_that_has_the_number_of_a_spawner) {
  auto link = exec_spawner().value();
  ::kill(link.pid, SIGKILL);
  ::waitpid(link.pid, nullptr, 0); // As a program that waits for any child.
  auto stranger = start_stranger(link.pid);
  if (stranger < 0)
    GTEST_SKIP() << "this host lets no process choose its number";
  EXPECT_EQ(reap(link, 0), "ended");
  EXPECT_EQ(::waitpid(stranger, nullptr, WNOHANG), 0);
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
}

TEST(spawner_death_test, ends_what_ranks_of_a_killed_spawner_started) {
  spawner_connection client{exec_spawner().value()};
  auto started = start_rank_with_child(client, "keep_child");
  ASSERT_GT(started.child, 0);
  auto process = open_pidfd(started.child);
  ::kill(spawner_of(client), SIGKILL);
  EXPECT_EQ(started.rank.end.get().how, process_exit::kind::lost);
  EXPECT_TRUE(has_ended(process, 0));
}

TEST(spawner_death_test, ranks_of_a_stopped_spawner_are_killed_and_reported) {
  spawner_connection client{exec_spawner().value()};
  unique_fd first_writer, second_writer;
  auto first = start_waiting(client, first_writer);
  auto second = start_waiting(client, second_writer);
  auto process = open_pidfd(first.pid.get().value());
  ASSERT_TRUE(second.pid.get());
  auto stopped = spawner_of(client);
  auto spawner = open_pidfd(stopped);
  ::kill(stopped, SIGSTOP);
  client.kill(first.id, SIGKILL);
  auto end = first.end.get();
  EXPECT_EQ(end.how, process_exit::kind::lost);
  EXPECT_THAT(end.termination_message, HasSubstr("did not say how within 2 s"));
  EXPECT_TRUE(has_ended(process, 0));
  // The other one is none the worse for it ...
  EXPECT_FALSE(has_ended(spawner, 0));
  second_writer.reset();
  EXPECT_EQ(second.end.get().how, process_exit::kind::lost);
  // ... and the next one gets a spawner that answers.
  EXPECT_EQ(run_rank(client, command("return 6")).code, 6);
  EXPECT_NE(spawner_of(client), stopped);
}

TEST(spawner_death_test, a_rank_pending_at_a_stopped_spawner_can_be_given_up) {
  spawner_connection client{exec_spawner().value()};
  ASSERT_EQ(run_rank(client, command("return 1")).code, 1);
  ::kill(spawner_of(client), SIGSTOP);
  // One that was sent, one that waits because the socket is full.
  auto sent = start_rank(client, command("return 2"));
  auto large =
    start_rank(client, command(std::string(std::size_t{8} << 20, 'x')));
  auto waiting = start_rank(client, command("return 3"));
  client.kill(waiting.id, SIGKILL);
  EXPECT_THAT(waiting.pid.get().error().message, HasSubstr("no longer needed"));
  client.kill(sent.id, SIGKILL);
  EXPECT_EQ(sent.pid.get().error().message,
            "not started: the spawner did not answer for 2 s and was killed");
  EXPECT_FALSE(large.pid.get());
  EXPECT_EQ(run_rank(client, command("return 4")).code, 4);
}

TEST(spawner_death_test, a_client_ends_although_its_spawner_is_stopped) {
  unique_fd writer;
  unique_fd process;
  {
    spawner_connection client{exec_spawner().value()};
    auto rank = start_waiting(client, writer);
    process = open_pidfd(rank.pid.get().value());
    ::kill(spawner_of(client), SIGSTOP);
    auto large =
      start_rank(client, command(std::string(std::size_t{8} << 20, 'x')));
  }
  EXPECT_TRUE(has_ended(process, 0));
}

// Before or after the client has seen the end, but never for nothing.
TEST(spawner_death_test, starts_another_for_a_request_that_was_not_sent) {
  for (auto is_first : {true, false}) {
    auto link = exec_spawner().value();
    auto process = open_pidfd(link.pid);
    pollfd hello{link.socket.get(), POLLIN, 0};
    while (::poll(&hello, 1, -1) < 1)
      continue;
    spawner_connection client{std::move(link)};
    if (!is_first) {
      EXPECT_EQ(run_rank(client, command("return 1")).code, 1);
    }
    send_signal(process, SIGKILL);
    wait_for_end(process);
    auto rank = start_rank(client, command("return 2"));
    auto started = rank.pid.get();
    ASSERT_TRUE(started) << started.error().message;
    EXPECT_EQ(rank.end.get().code, 2);
  }
}

TEST(spawner_death_test, says_why_no_other_spawner_could_be_started) {
  auto variables = own_variables();
  variables.push_back(no_spawner_variable + std::string{"=1"});
  spawner_connection client{exec_spawner().value(), std::move(variables)};
  unique_fd writer;
  auto rank = start_waiting(client, writer);
  ASSERT_TRUE(rank.pid.get());
  ::kill(spawner_of(client), SIGKILL);
  rank.end.get();
  auto pid = start_rank(client, command("return 0")).pid.get();
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().code, ec::spawn);
  EXPECT_EQ(pid.error().message,
            "not started: the spawner exited with code 5 before it was ready");
}

TEST(spawner_death_test, refuses_a_request_if_there_is_no_thread_for_it) {
  spawner_connection client{exec_spawner().value()};
  {
    no_new_threads none;
    auto pid = start_rank(client, command("return 1")).pid.get();
    ASSERT_FALSE(pid);
    EXPECT_EQ(pid.error().code, ec::spawn);
    EXPECT_THAT(pid.error().message, HasSubstr("no thread"));
  }
  EXPECT_EQ(run_rank(client, command("return 2")).code, 2);
}

TEST(spawner_death_test, ends_its_ranks_with_the_client) {
  unique_fd writer;
  unique_fd process;
  {
    spawner_connection client{exec_spawner().value()};
    auto rank = start_waiting(client, writer);
    process = open_pidfd(rank.pid.get().value());
  }
  pollfd now{process.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&now, 1, 0), 1) << "the rank outlived the client";
}

TEST(spawner_death_test, serves_a_program_that_had_threads_before) {
  auto program = start_program("late");
  EXPECT_EQ(read_all(program.output.get()), "exited with code 0\n");
  EXPECT_EQ(program.wait(), 0);
}

TEST(spawner_death_test, starts_no_ranks_of_a_user_that_the_program_was) {
  auto program = start_program("change_user");
  auto said = read_all(program.output.get());
  EXPECT_EQ(program.wait(), 0);
  if (said.empty())
    GTEST_SKIP() << "this user cannot become another";
  EXPECT_THAT(said, HasSubstr("runs as user 54321 and group"));
  EXPECT_THAT(said, HasSubstr("call troupe::init only after the change"));
}

// As network storage refuses one that another client has made again.
TEST(spawner_death_test, starts_ranks_in_a_folder_that_is_closed_to_it_too) {
  auto program = start_program("closed_folder");
  auto said = read_all(program.output.get());
  EXPECT_EQ(program.wait(), 0);
  if (said.empty())
    GTEST_SKIP() << "no folder can be closed to this user";
  EXPECT_EQ(said, "exited with code 5\n");
}

TEST(spawner_death_test, is_not_mistaken_for_one_by_a_stale_variable) {
  ::setenv("TROUPE_SPAWNER", "1", 1);
  auto program = start_program("leave_ranks");
  ::unsetenv("TROUPE_SPAWNER");
  EXPECT_EQ(read_pids(program.output.get()).size(), 1u);
  EXPECT_EQ(program.wait(), 0);
}
