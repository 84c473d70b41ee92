// What ranks of earlier attempts left running.

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "tests/support/few_descriptors.hpp"
#include "tests/support/mentions.hpp"
#include "tests/support/sleeping_program.hpp"
#include "tests/unit/runtime/store/ranks_lock_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"

namespace troupe::internal::test {

namespace {

class left_processes_test : public ranks_lock_test {};

/// Begins an attempt; what was noted meanwhile.
expected<std::vector<store_event>>
begin(run_folder& folder, const store_event_listener& note = ignore_store_event,
      std::chrono::milliseconds limit = {}) {
  std::vector<store_event> result;
  auto keep = [&](store_event x) {
    result.push_back(x);
    return note(std::move(x));
  };
  return folder
    .await_ranks(
      limit, [] { return false; }, keep)
    .map([&] { return std::move(result); });
}

/// A program that a rank of the attempt *token* started.
pid_t start_program_of(std::uint64_t token) {
  return start_sleep(
    {"A=1", std::string{attempt_variable} + '=' + attempt_value(token)});
}

// Driver and spawner were killed at once.
TEST_F(left_processes_test,
       a_driver_ends_what_ranks_of_the_one_before_have_left) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  auto token = first->ticket().value().token;
  auto left = start_program_of(token);
  auto other = start_program_of(token + 1);
  // Not by the driver itself: its spawner does that.
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  EXPECT_EQ(::waitpid(left, nullptr, WNOHANG), 0);
  auto last = start_program_of(first->ticket().value().token);
  first.reset();
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  auto before = token_in(run);
  // Noted while the file still has the token of those that were killed.
  auto begun = begin(*second, [&](store_event) {
    EXPECT_EQ(token_in(run), before);
    return expected<void>{};
  });
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_NE(token_in(run), before);
  ASSERT_EQ(begun->size(), 1u);
  EXPECT_EQ(begun->front().kind, "programs_killed");
  EXPECT_EQ(begun->front().fields,
            (metrics{{"processes", "pid " + std::to_string(last)}}));
  int status = 0;
  EXPECT_EQ(::waitpid(last, &status, WNOHANG), last);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(::waitpid(other, &status, WNOHANG), 0);
  for (auto pid : {left, other}) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(left_processes_test,
       a_start_in_a_copy_of_a_run_kills_nothing_of_the_run) {
  auto original = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(original->claim(0));
  ASSERT_TRUE(original->await_ranks(std::chrono::milliseconds{0}));
  auto program = start_program_of(original->ticket().value().token);
  fs::copy(run, storage.path() / "copy", fs::copy_options::recursive);
  auto copy = run_folder::open(storage.path(), "copy").value();
  ASSERT_TRUE(copy->claim(1));
  auto begun = begin(*copy);
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_EQ(::waitpid(program, nullptr, WNOHANG), 0);
  end(program);
  // Nor is it silent: a file system that was mounted again looks the same.
  ASSERT_EQ(begun->size(), 1u);
  EXPECT_EQ(begun->front().kind, "programs_not_searched");
}

/// A spawner of this process is killed.
void lose_spawner() {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  auto pid = ::fork();
  if (pid == 0) {
    ::setsid();
    ::close(ends[1]); // What keeps the client waiting for a hello.
    for (;;)
      ::pause();
  }
  ::close(ends[1]);
  auto losses = spawner_losses();
  spawner_connection connection{{unique_fd{ends[0]}, pid, open_pidfd(pid)}};
  std::promise<bool> refused;
  connection.spawn(
    {}, [&](expected<pid_t> x) { refused.set_value(!x); }, [](process_exit) {});
  EXPECT_TRUE(refused.get_future().get());
  EXPECT_GT(spawner_losses(), losses);
}

// The spawner alone was killed, and with it what would have ended them.
TEST_F(left_processes_test, a_driver_ends_what_ranks_of_its_lost_spawner_left) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(begin(*folder));
  for (auto run_ends : {false, true}) {
    auto left = start_program_of(token_in(run));
    lose_spawner();
    std::vector<store_event> events;
    auto note = [&](store_event x) {
      events.push_back(std::move(x));
      return expected<void>{};
    };
    if (run_ends)
      EXPECT_TRUE(folder->end_remaining_processes(note));
    else
      EXPECT_TRUE(begin(*folder, note));
    int status = 0;
    EXPECT_EQ(::waitpid(left, &status, WNOHANG), left);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events.front().fields,
              (metrics{{"processes", "pid " + std::to_string(left)}}));
  }
}

TEST_F(left_processes_test,
       an_end_without_a_lost_spawner_searches_for_nothing) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  lose_spawner();
  ASSERT_TRUE(begin(*folder));
  auto other = start_program_of(token_in(run));
  ASSERT_TRUE(folder->end_remaining_processes(ignore_store_event));
  EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0);
  end(other);
}

/// A process that a rank of the attempt under way has forked and left.
pid_t fork_in_a_rank(const run_folder& folder) {
  auto ticket = folder.ticket().value();
  int said[2];
  EXPECT_EQ(::pipe(said), 0);
  auto rank = ::fork();
  if (rank == 0) {
    auto lock = join_attempt(ticket);
    auto child = lock ? ::fork() : -1;
    if (child == 0) {
      ::setsid();
      child = ::getpid();
      (void) !::write(said[1], &child, sizeof(child));
      for (;;)
        ::pause();
    }
    ::_exit(0);
  }
  ::close(said[1]);
  ::waitpid(rank, nullptr, 0);
  pid_t child = -1;
  EXPECT_EQ(::read(said[0], &child, sizeof(child)),
            static_cast<ssize_t>(sizeof(child)));
  ::close(said[0]);
  return child;
}

// The journal of a run that ends for it takes no line.
TEST_F(left_processes_test, an_end_without_a_journal_leaves_nothing_of_ranks) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(begin(*folder));
  auto child = open_pidfd(fork_in_a_rank(*folder));
  auto program = start_program_of(token_in(run));
  lose_spawner();
  auto ended = folder->end_remaining_processes(
    [](store_event) -> expected<void> { return failure(ec::storage, "full"); });
  EXPECT_FALSE(ended);
  EXPECT_TRUE(has_ended(child, 0));
  auto reaped = ::waitpid(program, nullptr, WNOHANG);
  EXPECT_EQ(reaped, program);
  if (reaped != program)
    end(program);
}

// Only the lock identifies them: they have the environment of the spawner.
TEST_F(left_processes_test, an_attempt_ends_what_ranks_have_forked) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(begin(*folder));
  auto child = fork_in_a_rank(*folder);
  auto process = open_pidfd(child);
  auto begun = begin(*folder, ignore_store_event, std::chrono::minutes{1});
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_TRUE(has_ended(process, 0));
  ASSERT_EQ(begun->size(), 1u);
  EXPECT_EQ(begun->front().fields,
            (metrics{{"processes", "pid " + std::to_string(child)}}));
}

// It would find the processes of the attempt that has begun since.
TEST_F(left_processes_test, a_search_that_was_given_up_kills_nothing_later) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(begin(*folder));
  auto left = open_pidfd(fork_in_a_rank(*folder));
  auto threads = thread_count();
  ASSERT_TRUE(arm_failpoint("ranks.search:1+=eio"));
  auto is_searching = [&] { return thread_count() > threads; };
  auto stopped = folder->await_ranks(std::chrono::minutes{1}, is_searching);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ec::stopped);
  send_signal(left, SIGKILL);
  ASSERT_TRUE(has_ended(left, 60'000));
  auto begun = begin(*folder, ignore_store_event, std::chrono::minutes{1});
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_EQ(begun->size(), 0u);
  auto child = open_pidfd(fork_in_a_rank(*folder));
  ASSERT_TRUE(arm_failpoint(""));
  while (is_searching())
    std::this_thread::yield();
  EXPECT_FALSE(has_ended(child, 0));
  send_signal(child, SIGKILL);
}

TEST_F(left_processes_test,
       an_attempt_notes_that_it_could_not_look_for_programs) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(begin(*first));
  auto left = start_program_of(token_in(run));
  first.reset();
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  auto begun = [&] {
    few_descriptors limit{1}; // For the file itself.
    return begin(*second);
  }();
  end(left);
  ASSERT_TRUE(begun) << begun.error().message;
  ASSERT_EQ(begun->size(), 1u);
  EXPECT_EQ(begun->front().kind, "programs_not_searched");
  EXPECT_TRUE(to_string(begun->front()).find("Too many open files")
              != std::string::npos)
    << to_string(begun->front());
}

// As one that waits for a device: here a tracer keeps it from its end.
TEST_F(left_processes_test, a_program_that_cannot_be_killed_is_listed) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  auto left = start_program_of(first->ticket().value().token);
  if (::ptrace(PTRACE_SEIZE, left, nullptr, PTRACE_O_TRACEEXIT) != 0) {
    end(left);
    GTEST_SKIP() << "no process may be traced here";
  }
  first.reset();
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  auto refused = second->await_ranks(std::chrono::milliseconds{0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::timeout);
  EXPECT_TRUE(mentions(refused.error(), "pid " + std::to_string(left)))
    << refused.error().message;
  int status = 0;
  ASSERT_EQ(::waitpid(left, &status, __WALL), left);
  ASSERT_TRUE(WIFSTOPPED(status));
  ::ptrace(PTRACE_CONT, left, nullptr, nullptr);
  ASSERT_EQ(::waitpid(left, &status, __WALL), left);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto begun = second->await_ranks(std::chrono::milliseconds{0});
  EXPECT_TRUE(begun) << begun.error().message;
}

TEST_F(left_processes_test, a_process_that_cannot_be_read_holds_no_start_up) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  first.reset();
  auto attempt = attempt_value(token_in(run));
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  ASSERT_TRUE(arm_failpoint("ranks.search:1+=eio"));
  auto stopped =
    second->await_ranks(std::chrono::milliseconds{0}, [] { return true; });
  auto begun = begin(*second);
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ec::stopped);
  ASSERT_TRUE(begun) << begun.error().message;
  ASSERT_EQ(begun->size(), 1u);
  EXPECT_EQ(begun->front().kind, "programs_not_searched");
  EXPECT_EQ(begun->front().fields.at("variable"),
            metric_value{"TROUPE_ATTEMPT=" + attempt});
}

TEST_F(left_processes_test,
       the_journal_names_what_was_killed_of_another_attempt) {
  ASSERT_TRUE(open().value()->begin_attempt());
  auto left = start_program_of(token_in(run));
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  ::waitpid(left, nullptr, 0);
  auto reader = journal_reader::open(run / "journal.jsonl").value();
  std::vector<metrics> found;
  while (auto entry = reader.next().value())
    if (auto event = std::get_if<journal_event>(&*entry);
        event && event->kind == "programs_killed")
      found.push_back(event->fields);
  EXPECT_EQ(found, (std::vector<metrics>{
                     {{"processes", "pid " + std::to_string(left)}}}));
}

} // namespace

} // namespace troupe::internal::test
