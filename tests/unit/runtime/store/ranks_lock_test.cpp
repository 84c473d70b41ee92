// What ranks of earlier attempts left, and which ranks may join an attempt.

#include "troupe/runtime/store/ranks_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/few_descriptors.hpp"
#include "tests/support/mentions.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_store.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

class ranks_lock_test : public testing::Test {
protected:
  expected<std::unique_ptr<run_store>> open() {
    run_config config;
    config.name = "r";
    config.storage_path = storage.path();
    return run_store::open(config);
  }

  temporary_folder storage;
  fs::path run = storage / "r";
};

TEST_F(ranks_lock_test, a_rank_that_no_one_waited_for_joins_no_attempt) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  auto late = folder->ticket().value();
  // Another attempt is about to begin, then it has begun.
  folder->release();
  unique_fd other{::open((run / "ranks").c_str(), O_RDWR | O_CLOEXEC)};
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  for (auto begun : {false, true}) {
    if (begun) {
      other.reset();
      ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
    }
    auto joined = join_attempt(late);
    ASSERT_FALSE(joined) << begun;
    EXPECT_EQ(joined.error().code, ec::stopped);
    EXPECT_TRUE(
      mentions(joined.error(), "another attempt of the run has begun"));
  }
  auto rank = join_attempt(folder->ticket().value());
  EXPECT_TRUE(rank) << rank.error().message;
}

/// The attempt that the run's file names.
std::uint64_t token_in(const fs::path& run) {
  return std::stoull(bytes_of(run / "ranks").substr(0, 16), nullptr, 16);
}

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

/// `sleep`, started by a rank of the attempt *token*, in a session of its own.
pid_t start_sleep(std::uint64_t token) {
  auto variable = std::string{attempt_variable} + '=' + attempt_value(token);
  std::string program = "sleep", time = "600", set = "A=1";
  char* arguments[] = {program.data(), time.data(), nullptr};
  char* environment[] = {set.data(), variable.data(), nullptr};
  posix_spawnattr_t with;
  posix_spawnattr_init(&with);
  posix_spawnattr_setflags(&with, POSIX_SPAWN_SETSID);
  pid_t result = -1;
  EXPECT_EQ(
    ::posix_spawnp(&result, "sleep", nullptr, &with, arguments, environment),
    0);
  posix_spawnattr_destroy(&with);
  // The kernel shows the environment a moment after it started the program.
  while (bytes_of("/proc/" + std::to_string(result) + "/environ").empty())
    std::this_thread::yield();
  return result;
}

// Driver and spawner were killed at once.
TEST_F(ranks_lock_test, a_driver_ends_what_ranks_of_the_one_before_have_left) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  auto token = first->ticket().value().token;
  auto left = start_sleep(token);
  auto other = start_sleep(token + 1);
  // Not by the driver itself: its spawner does that.
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  EXPECT_EQ(::waitpid(left, nullptr, WNOHANG), 0);
  auto last = start_sleep(first->ticket().value().token);
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

TEST_F(ranks_lock_test, a_start_in_a_copy_of_a_run_kills_nothing_of_the_run) {
  auto original = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(original->claim(0));
  ASSERT_TRUE(original->await_ranks(std::chrono::milliseconds{0}));
  auto program = start_sleep(original->ticket().value().token);
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
TEST_F(ranks_lock_test, a_driver_ends_what_ranks_of_its_lost_spawner_left) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(begin(*folder));
  for (auto run_ends : {false, true}) {
    auto left = start_sleep(token_in(run));
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

TEST_F(ranks_lock_test, an_end_without_a_lost_spawner_searches_for_nothing) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  lose_spawner();
  ASSERT_TRUE(begin(*folder));
  auto other = start_sleep(token_in(run));
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
TEST_F(ranks_lock_test, an_end_without_a_journal_leaves_nothing_of_ranks) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(begin(*folder));
  auto child = open_pidfd(fork_in_a_rank(*folder));
  auto program = start_sleep(token_in(run));
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
TEST_F(ranks_lock_test, an_attempt_ends_what_ranks_have_forked) {
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
TEST_F(ranks_lock_test, a_search_that_was_given_up_kills_nothing_later) {
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

TEST_F(ranks_lock_test, an_attempt_notes_that_it_could_not_look_for_programs) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(begin(*first));
  auto left = start_sleep(token_in(run));
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
TEST_F(ranks_lock_test, a_program_that_cannot_be_killed_is_listed) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  auto left = start_sleep(first->ticket().value().token);
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

TEST_F(ranks_lock_test, a_process_that_cannot_be_read_holds_no_start_up) {
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

TEST_F(ranks_lock_test, the_journal_names_what_was_killed_of_another_attempt) {
  ASSERT_TRUE(open().value()->begin_attempt());
  auto left = start_sleep(token_in(run));
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

// Removing the file excludes no rank from its attempt.
TEST_F(ranks_lock_test, ranks_join_an_attempt_whose_file_was_removed) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  fs::remove(run / "ranks");
  auto rank = join_attempt(folder->ticket().value());
  EXPECT_TRUE(rank) << rank.error().message;
}

/// A process that has what a rank has, and nothing else of the driver's. Ends
/// when asked to.
class joined_rank {
public:
  explicit joined_rank(const ranks_ticket& ticket) {
    int ends[2], ready[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      auto lock = join_attempt(ticket).value();
      ::dup2(ends[0], 200);
      ::dup2(lock.get(), 201);
      ::dup2(ready[1], 202);
      ::close_range(3, 199, 0);
      ::close_range(203, ~0u, 0);
      char end = 0;
      (void) !::write(202, &end, 1);
      (void) !::read(200, &end, 1);
      ::_exit(0);
    }
    ::close(ends[0]);
    ::close(ready[1]);
    end_ = ends[1];
    char has_closed_the_rest;
    EXPECT_EQ(::read(ready[0], &has_closed_the_rest, 1), 1);
    ::close(ready[0]);
  }

  ~joined_rank() {
    end();
    ::waitpid(pid_, nullptr, 0);
  }

  void end() {
    if (end_ >= 0)
      ::close(std::exchange(end_, -1));
  }

  pid_t pid() const { return pid_; }

private:
  pid_t pid_ = -1;
  int end_ = -1;
};

TEST_F(ranks_lock_test, an_attempt_waits_for_the_processes_of_earlier_ones) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  joined_rank rank{first->ticket().value()};
  // The driver's own restart, and the next driver.
  EXPECT_FALSE(first->await_ranks(std::chrono::milliseconds{0}));
  first.reset();
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  auto refused = second->await_ranks(std::chrono::milliseconds{20});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::timeout);
  EXPECT_TRUE(mentions(refused.error(), "pid " + std::to_string(rank.pid())))
    << refused.error().message;
  auto stopped =
    second->await_ranks(std::chrono::hours{1}, [] { return true; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ec::stopped);
  rank.end();
  ASSERT_TRUE(second->await_ranks(std::chrono::seconds{60}));
}

// N6: a host that is frozen keeps its ranks and their locks. They, and what
// starts there after its thaw, have no part in later attempts.
TEST_F(ranks_lock_test, an_attempt_gives_up_the_ranks_of_lost_hosts) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  auto token = folder->ticket().value().token;
  joined_rank frozen{folder->ticket().value()};
  // Its agent has the file open, and is about to start a rank.
  auto late = open_ranks_ticket(run, token).value();
  std::vector<store_event> noted;
  auto note = [&](store_event x) -> expected<void> {
    EXPECT_EQ(token_in(run), token) << "journaled before anything happens";
    noted.push_back(std::move(x));
    return {};
  };
  auto patience = std::chrono::milliseconds{150};
  auto abandoned = [&](std::chrono::milliseconds waited) {
    return std::string{waited < patience ? "" : "h2, h3"};
  };
  ASSERT_TRUE(folder->await_ranks(
    std::chrono::hours{1}, [] { return false; }, note, abandoned));
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_EQ(noted[0].kind, "ranks_abandoned");
  EXPECT_EQ(noted[0].fields, (metrics{{"hosts", "h2, h3"}}));
  EXPECT_EQ(::waitpid(frozen.pid(), nullptr, WNOHANG), 0) << "it is out of "
                                                             "reach";
  auto joined = join_attempt(late);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ec::stopped);
  EXPECT_FALSE(open_ranks_ticket(run, token));
  // The next attempt has its own locks, and that of the lost one is in nobody's
  // way any more.
  auto next = folder->ticket().value();
  EXPECT_TRUE(open_ranks_ticket(run, next.token));
  {
    joined_rank rank{next};
    EXPECT_FALSE(folder->await_ranks(std::chrono::milliseconds{0}));
  }
  ASSERT_TRUE(folder->await_ranks(std::chrono::seconds{60}));
  std::size_t files = 0;
  for (auto& x : fs::directory_iterator(run))
    files += x.path().filename().string().starts_with("ranks") ? 1 : 0;
  EXPECT_EQ(files, 1u);
}

TEST_F(ranks_lock_test, a_run_gives_up_the_hosts_that_it_has_lost) {
  auto store = open().value();
  auto first = store->begin_attempt().value().attempt;
  joined_rank frozen{store->ticket().value()};
  store->abandon_ranks_of("h2");
  auto second = store->begin_attempt();
  ASSERT_TRUE(second) << second.error().message;
  // Its checkpoint, which it completes after its thaw, is not committed and
  // does not touch that of the attempt under way.
  auto own = stage_batch(run, second->attempt, 0, "c0", {{{"f", "own"}}});
  auto late = stage_batch(run, first, 0, "c0", {{{"f", "late"}}});
  ASSERT_TRUE(own);
  if (late) {
    EXPECT_FALSE(store->commit(first, *late));
  }
  auto kept = store->commit(second->attempt, *own);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(bytes_of(run / "checkpoints/c0/f"), "own");
}

TEST_F(ranks_lock_test, another_host_joins_the_latest_attempt_by_its_token) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  auto token = store->ticket().value().token;
  auto ticket = open_ranks_ticket(store->path(), token);
  ASSERT_TRUE(ticket) << ticket.error().message;
  EXPECT_TRUE(join_attempt(*ticket));
  auto other = open_ranks_ticket(store->path(), token + 1);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ec::conflict);
}

TEST_F(ranks_lock_test, another_storage_at_the_same_path_is_noticed) {
  auto ticket = open_ranks_ticket(storage / "elsewhere", 1);
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code, ec::invalid_config);
}
