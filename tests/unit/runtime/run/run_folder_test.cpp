// Who may write to a run, and where its files are.

#include "troupe/runtime/store/run_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/store_batch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_store.hpp"
#include "troupe/runtime/store/told_reports.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

bool says(const error& x, const std::string& text) {
  return x.message.find(text) != std::string::npos;
}

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> result;
  for (auto& x : fs::directory_iterator{folder})
    result.push_back(x.path().filename().string());
  std::ranges::sort(result);
  return result;
}

/// While it exists no file gets another byte; new ones can be created.
struct full_disk {
  full_disk() {
    ::getrlimit(RLIMIT_FSIZE, &before);
    auto none = before;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~full_disk() {
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::signal(SIGXFSZ, handler);
  }

  rlimit before{};
  sighandler_t handler = ::signal(SIGXFSZ, SIG_IGN);
};

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

} // namespace

class run_folder_test : public testing::Test {
protected:
  expected<std::unique_ptr<run_store>> open() {
    run_config config;
    config.name = "r";
    config.storage_path = storage.path();
    return run_store::open(config);
  }

  /// Report *index* of the driver *who*, with a checkpoint if *file*.
  expected<void> report(run_store& store, std::uint64_t attempt,
                        std::uint64_t index, const char* who,
                        bool file = false) {
    report_batch batch;
    if (file)
      batch = stage_batch(run, attempt, index,
                          std::string{"c"} + who + std::to_string(index),
                          {{{"weights", who}}}, {{"who", std::string{who}}})
                .value();
    else
      batch = {index, {{{"who", std::string{who}}}}, {std::nullopt}};
    return test::store_batch(store, attempt, batch).map([](auto&&) {});
  }

  /// Whose reports the journal has, in order; "?" for a damaged line.
  std::string writers() {
    auto reader = journal_reader::open(run / "journal.jsonl").value();
    std::string result;
    for (;;) {
      auto entry = reader.next();
      if (!entry)
        result += '?';
      else if (!*entry)
        return result;
      else if (auto row = std::get_if<history_row>(&**entry))
        result += to_string(row->values[0].at("who"));
    }
  }

  /// As on storage where a lock holds on one host only: the files are there,
  /// and another host finds none of them locked.
  void forget_locks() {
    for (auto& x : fs::directory_iterator{run / "attempts"}) {
      auto text = bytes_of(x.path());
      fs::remove(x.path());
      write_bytes(x.path(), text);
    }
    fs::remove(run / "lock");
    fs::remove(run / "ranks");
  }

  temporary_folder storage;
  fs::path run = storage / "r";
};

TEST_F(run_folder_test, refuses_a_second_driver_although_the_lock_was_removed) {
  auto first = open().value();
  auto start = first->begin_attempt().value();
  ASSERT_TRUE(report(*first, start.attempt, 0, "A"));
  fs::remove(run / "lock");
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ec::conflict);
  EXPECT_TRUE(says(second.error(), "pid " + std::to_string(::getpid())))
    << second.error().message;
  // The first one continues as if nothing had happened.
  ASSERT_TRUE(report(*first, start.attempt, 1, "A", true));
  ASSERT_TRUE(first->finish(run_status_kind::finished));
  EXPECT_EQ(writers(), "AA");
}

TEST_F(run_folder_test, an_ousted_driver_loses_nothing_and_writes_no_more) {
  auto first = open().value();
  auto a = first->begin_attempt().value();
  ASSERT_TRUE(report(*first, a.attempt, 0, "A"));
  ASSERT_TRUE(report(*first, a.attempt, 1, "A", true));
  auto told = told_reports::open(*first).value();
  forget_locks();
  auto second = open().value();
  auto b = second->begin_attempt().value();
  EXPECT_GT(b.attempt, a.attempt);
  EXPECT_EQ(b.first_report, 2u);
  ASSERT_TRUE(b.resume);
  EXPECT_EQ(b.resume->data.name(), "cA1");
  // Both continue; what is acknowledged exists at the end.
  std::string acknowledged = "AA";
  for (std::uint64_t i = 2; i < 6; ++i) {
    auto with_file = i == 4;
    auto old = report(*first, a.attempt, i, "A", with_file);
    ASSERT_FALSE(old);
    EXPECT_EQ(old.error().code, ec::conflict);
    EXPECT_TRUE(says(old.error(), "pid " + std::to_string(::getpid())))
      << old.error().message;
    ASSERT_TRUE(report(*second, b.attempt, i, "B", with_file));
    acknowledged += 'B';
  }
  EXPECT_FALSE(first->append_event("note", a.attempt));
  EXPECT_FALSE(first->begin_attempt());
  EXPECT_FALSE(told.told(5));
  auto state = bytes_of(run / "state.json");
  auto staged = staged_checkpoint::create(run, b.attempt, 0).value();
  write_bytes(staged.path() / "weights", "half");
  auto end = first->finish(run_status_kind::errored);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ec::conflict);
  EXPECT_EQ(bytes_of(run / "state.json"), state);
  EXPECT_TRUE(fs::exists(staged.path() / "weights"));
  EXPECT_EQ(writers(), acknowledged);
  for (auto name : {"cA1", "cB4"})
    EXPECT_TRUE(checkpoint::from_directory(run / "checkpoints" / name).verify())
      << name;
  first.reset(); // gives back nothing that is not its own
  ASSERT_TRUE(report(*second, b.attempt, 6, "B"));
}

TEST_F(run_folder_test, a_driver_whose_folder_was_replaced_leaves_it_alone) {
  auto first = open().value();
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(first->begin_attempt());
  ASSERT_TRUE(report(*first, 4, 0, "A"));
  fs::rename(run, storage / "old");
  auto second = open().value();
  auto b = second->begin_attempt().value();
  EXPECT_EQ(b.attempt, 0u);
  auto staged = staged_checkpoint::create(run, b.attempt, 0).value();
  write_bytes(staged.path() / "weights", "half");
  auto state = bytes_of(run / "state.json");
  auto commit = report(*first, 4, 1, "A", true);
  ASSERT_FALSE(commit);
  EXPECT_TRUE(says(commit.error(), run.string())) << commit.error().message;
  auto end = first->finish(run_status_kind::errored);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error(), commit.error());
  EXPECT_EQ(bytes_of(run / "state.json"), state);
  EXPECT_TRUE(fs::exists(staged.path() / "weights"));
  ASSERT_TRUE(report(*second, b.attempt, 0, "B"));
  EXPECT_EQ(writers(), "B");
  run = storage / "old";
  EXPECT_EQ(writers(), "A"); // what had been acknowledged went with it
}

TEST_F(run_folder_test, a_state_that_someone_else_replaced_is_left_alone) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  auto other = to_json(saved_run{.next_attempt = 7});
  fs::remove(run / "state.json");
  write_bytes(run / "state.json", other);
  auto again = store->begin_attempt();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ec::conflict);
  EXPECT_TRUE(says(again.error(), "state.json")) << again.error().message;
  EXPECT_FALSE(store->finish(run_status_kind::finished));
  EXPECT_EQ(bytes_of(run / "state.json"), other);
}

TEST_F(run_folder_test, says_when_a_driver_on_another_host_may_still_write) {
  {
    auto folder = run_folder::open(storage.path(), "r").value();
    EXPECT_FALSE(folder->claim(3).value());
  }
  // A driver that died here has certainly ended.
  EXPECT_FALSE(run_folder::open(storage.path(), "r").value()->claim(3).value());
  for (auto& x : fs::directory_iterator{run / "attempts"})
    fs::remove(x.path());
  write_bytes(run / "attempts" / "3",
              to_line({"elsewhere", "another-boot", 17, "4711"}));
  auto folder = run_folder::open(storage.path(), "r").value();
  EXPECT_TRUE(folder->claim(4).value());
  EXPECT_TRUE(folder->check());
  EXPECT_FALSE(fs::exists(run / "attempts" / "3"));
  auto me = process_from_line(bytes_of(run / "attempts" / "4"));
  ASSERT_TRUE(me);
  EXPECT_EQ(*me, own_identity());
  // One that gave the run back does not write.
  folder.reset();
  write_bytes(run / "attempts" / "4", "");
  EXPECT_FALSE(run_folder::open(storage.path(), "r").value()->claim(5).value());
}

TEST_F(run_folder_test, a_driver_that_cannot_make_its_claim_ousts_no_one) {
  auto attempts = run / "attempts";
  auto line = to_line({"elsewhere", "another-boot", 17, "4711"});
  auto folder = run_folder::open(storage.path(), "r").value();
  write_bytes(attempts / "3", line);
  for (auto attempt : {3, 4}) {
    {
      full_disk no_more;
      auto claimed = folder->claim(attempt);
      ASSERT_FALSE(claimed);
      EXPECT_EQ(claimed.error().code, ec::storage);
    }
    EXPECT_EQ(bytes_of(attempts / "3"), line) << attempt;
    EXPECT_EQ(files_in(attempts), std::vector<std::string>{"3"});
  }
  // With room on the disk it may have the run, the same number or not.
  auto claimed = folder->claim(3);
  ASSERT_TRUE(claimed) << claimed.error().message;
  EXPECT_TRUE(*claimed);
  EXPECT_FALSE(fs::exists(attempts / "3"));
  ASSERT_TRUE(folder->check());
  {
    full_disk no_more;
    EXPECT_FALSE(folder->claim(3));
  }
  EXPECT_TRUE(folder->check());
  EXPECT_TRUE(folder->claim(3));
  EXPECT_EQ(files_in(attempts), std::vector<std::string>{"3"});
}

TEST_F(run_folder_test, takes_its_claim_back_if_it_cannot_oust_another) {
  auto attempts = run / "attempts";
  auto folder = run_folder::open(storage.path(), "r").value();
  write_bytes(attempts / "2", "");
  fs::create_directory(attempts / "3");
  ASSERT_FALSE(folder->claim(4));
  EXPECT_EQ(files_in(attempts), (std::vector<std::string>{"2", "3"}));
  EXPECT_FALSE(folder->check());
  fs::remove(attempts / "3");
  EXPECT_TRUE(folder->claim(4));
  EXPECT_TRUE(folder->check());
}

TEST_F(run_folder_test, refuses_a_folder_of_another_user) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(run);
  ASSERT_EQ(::chown(run.c_str(), 65534, 65534), 0);
  const timespec long_ago[2]{{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, run.c_str(), long_ago, 0), 0);
  auto store = open();
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ec::storage);
  EXPECT_TRUE(says(store.error(), "belongs to user 65534"))
    << store.error().message;
  EXPECT_TRUE(fs::is_empty(run));
  if (!unique_fd{::open(run.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)})
    return; // A file with a name is needed to see who owns one.
  // Not even for a moment was a file in it.
  struct stat found {};
  ASSERT_EQ(::stat(run.c_str(), &found), 0);
  EXPECT_EQ(found.st_mtim.tv_sec, 1);
}

TEST_F(run_folder_test, refuses_folders_of_another_user_in_its_own) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can give a folder away";
  for (auto name : {"attempts", "logs", "sinks", "checkpoints"}) {
    fs::remove_all(run);
    fs::create_directories(run / name);
    ASSERT_EQ(::chown((run / name).c_str(), 65534, 65534), 0);
    auto store = open();
    ASSERT_FALSE(store) << name;
    EXPECT_TRUE(says(store.error(), (run / name).string() + " belongs to user"))
      << store.error().message;
  }
}

TEST_F(run_folder_test, writes_through_no_link) {
  auto target = storage / "of_someone";
  for (auto name : {"lock", "state.json", "journal.jsonl", "run.json"}) {
    fs::remove_all(run);
    fs::create_directory(run);
    write_bytes(target, "one line of theirs");
    fs::create_symlink(target, run / name);
    auto store = open();
    ASSERT_FALSE(store) << name;
    EXPECT_EQ(store.error().code, ec::storage);
    EXPECT_TRUE(says(store.error(), "symbolic link")) << store.error().message;
    EXPECT_EQ(bytes_of(target), "one line of theirs") << name;
  }
  auto elsewhere = storage / "folder";
  for (auto name : {"attempts", "logs", "sinks", "checkpoints"}) {
    fs::remove_all(run);
    fs::create_directory(run);
    fs::create_directory(elsewhere);
    fs::create_directory_symlink(elsewhere, run / name);
    EXPECT_FALSE(open()) << name;
    EXPECT_TRUE(fs::is_empty(elsewhere)) << name;
  }
  fs::remove_all(run);
  fs::create_directory_symlink(elsewhere, run);
  EXPECT_FALSE(open());
  EXPECT_TRUE(fs::is_empty(elsewhere));
  fs::remove(run);
  auto store = open().value();
  fs::create_symlink(target, run / "callbacks.told");
  EXPECT_FALSE(told_reports::open(*store));
  EXPECT_EQ(bytes_of(target), "one line of theirs");
}

TEST_F(run_folder_test, keeps_its_files_to_its_user) {
  auto before = ::umask(0);
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  ASSERT_TRUE(told_reports::open(*store));
  ::umask(before);
  for (auto name : {".", "attempts", "logs", "sinks", "checkpoints"})
    EXPECT_EQ(mode_of(run / name), mode_t{0700}) << name;
  for (auto name : {"lock", "run.json", "state.json", "journal.jsonl",
                    "callbacks.told", "attempts/0"})
    EXPECT_EQ(mode_of(run / name), mode_t{0600}) << name;
}

TEST_F(run_folder_test, leaves_files_alone_that_are_not_claims) {
  auto attempts = storage / "r" / "attempts";
  ASSERT_TRUE(run_folder::open(storage.path(), "r").value()->claim(0));
  fs::create_directory(attempts / ".snapshot");
  write_bytes(attempts / "notes.txt", "mine");
  auto second = run_folder::open(storage.path(), "r");
  ASSERT_TRUE(second) << second.error().message;
  auto claimed = (*second)->claim(1);
  ASSERT_TRUE(claimed) << claimed.error().message;
  EXPECT_EQ(bytes_of(attempts / "notes.txt"), "mine");
  EXPECT_TRUE(fs::exists(attempts / ".snapshot"));
}

TEST_F(run_folder_test, leaves_one_claim_whatever_the_number_of_attempts) {
  auto store = open().value();
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(store->begin_attempt());
  std::vector<std::string> names;
  for (auto& x : fs::directory_iterator{run / "attempts"})
    names.push_back(x.path().filename().string());
  EXPECT_EQ(names, std::vector<std::string>{"4"});
}

TEST_F(run_folder_test, a_state_that_could_not_be_looked_up_is_its_own) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->save_state({.next_attempt = 1}));
  for (auto fails : {"storage.look_up:3=eio",
                     "storage.sync_file:2=eio,storage.look_up:3=eio"}) {
    ASSERT_TRUE(arm_failpoint(fails));
    (void) folder->save_state({.next_attempt = 2});
    ASSERT_TRUE(arm_failpoint(""));
    auto saved = folder->save_state({.next_attempt = 3});
    EXPECT_TRUE(saved) << fails << ": " << saved.error().message;
  }
  ASSERT_TRUE(arm_failpoint("storage.look_up:3=eio"));
  ASSERT_TRUE(folder->save_state({.next_attempt = 4}));
  ASSERT_TRUE(arm_failpoint(""));
  write_bytes(run / "other", "{}");
  fs::rename(run / "other", run / "state.json");
  EXPECT_EQ(folder->save_state({}).error().code, ec::conflict);
}

TEST_F(run_folder_test,
       reports_a_folder_that_cannot_be_listed_and_keeps_no_descriptor) {
  auto folder = run_folder::open(storage.path(), "r").value();
  auto open_files = [] {
    return std::distance(fs::directory_iterator{"/proc/self/fd"},
                         fs::directory_iterator{});
  };
  auto before = open_files();
  ASSERT_TRUE(arm_failpoint("storage.list=eio"));
  auto names = folder->files().names();
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(names);
  EXPECT_EQ(names.error().code, ec::storage);
  EXPECT_TRUE(says(names.error(), run.string())) << names.error().message;
  EXPECT_EQ(open_files(), before);
}

// A child of fork() has the driver's descriptors, those that a rank is about to
// get, too.
TEST_F(run_folder_test, a_child_of_the_program_keeps_no_run) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  auto ticket = folder->ticket();
  ASSERT_TRUE(ticket);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    char end = 0;
    (void) !::read(ends[0], &end, 1);
    ::_exit(0);
  }
  ::close(ends[0]);
  auto rank = join_attempt(*ticket);
  ASSERT_TRUE(rank) << rank.error().message;
  EXPECT_FALSE(folder->await_ranks(std::chrono::milliseconds{0}));
  rank->reset(); // The rank has ended, the child has not.
  auto restart = folder->await_ranks(std::chrono::milliseconds{0});
  EXPECT_TRUE(restart) << restart.error().message;
  folder->release();
  EXPECT_FALSE(folder->ticket());
  folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(1));
  auto begun = folder->await_ranks(std::chrono::milliseconds{0});
  EXPECT_TRUE(begun) << begun.error().message;
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
}

// The driver is killed, and a child that it had forked survives.
TEST_F(run_folder_test, a_child_of_a_killed_driver_keeps_no_run) {
  int ends[2], said[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::pipe(said), 0);
  auto driver = ::fork();
  if (driver == 0) {
    auto folder = run_folder::open(storage.path(), "r").value();
    auto has_run =
      folder->claim(0) && folder->await_ranks(std::chrono::milliseconds{0});
    auto is_driver = !has_run || ::fork() != 0;
    ::alarm(60); // should the test not end it
    while (is_driver)
      ::pause();
    ::close(ends[1]);
    auto me = ::getpid();
    (void) !::write(said[1], &me, sizeof(me));
    char end = 0;
    (void) !::read(ends[0], &end, 1);
    ::_exit(0);
  }
  ::close(said[1]);
  pid_t child = -1;
  ASSERT_EQ(::read(said[0], &child, sizeof(child)),
            static_cast<ssize_t>(sizeof(child)));
  ASSERT_GT(child, 0);
  auto refused = run_folder::open(storage.path(), "r");
  ASSERT_FALSE(refused);
  EXPECT_TRUE(says(refused.error(), std::to_string(driver)));
  ::kill(driver, SIGKILL);
  ::waitpid(driver, nullptr, 0);
  EXPECT_EQ(::kill(child, 0), 0);
  auto folder = run_folder::open(storage.path(), "r");
  ASSERT_TRUE(folder) << folder.error().message;
  ASSERT_TRUE((*folder)->claim(1));
  auto begun = (*folder)->await_ranks(std::chrono::milliseconds{0});
  EXPECT_TRUE(begun) << begun.error().message;
  for (int fd : {ends[0], ends[1], said[0]})
    ::close(fd);
}

TEST_F(run_folder_test, a_child_of_the_driver_gives_no_lock_back) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  auto child = ::fork();
  if (child == 0) {
    folder->release();
    folder.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(run_folder::open(storage.path(), "r"));
  EXPECT_TRUE(folder->check());
}

TEST_F(run_folder_test, a_rank_that_no_one_waited_for_joins_no_attempt) {
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
    EXPECT_TRUE(says(joined.error(), "another attempt of the run has begun"));
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
TEST_F(run_folder_test, a_driver_ends_what_ranks_of_the_one_before_have_left) {
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

TEST_F(run_folder_test, a_start_in_a_copy_of_a_run_kills_nothing_of_the_run) {
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
  spawner_client client{{unique_fd{ends[0]}, pid, open_pidfd(pid)}};
  std::promise<bool> refused;
  client.spawn(
    {}, [&](expected<pid_t> x) { refused.set_value(!x); }, [](process_exit) {});
  EXPECT_TRUE(refused.get_future().get());
  EXPECT_GT(spawner_losses(), losses);
}

// The spawner alone was killed, and with it what would have ended them.
TEST_F(run_folder_test, a_driver_ends_what_ranks_of_its_lost_spawner_left) {
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
      EXPECT_TRUE(folder->end_what_ranks_left(note));
    else
      EXPECT_TRUE(begin(*folder, note));
    int status = 0;
    EXPECT_EQ(::waitpid(left, &status, WNOHANG), left);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events.front().fields,
              (metrics{{"processes", "pid " + std::to_string(left)}}));
  }
}

TEST_F(run_folder_test, an_end_without_a_lost_spawner_searches_for_nothing) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  lose_spawner();
  ASSERT_TRUE(begin(*folder));
  auto other = start_sleep(token_in(run));
  ASSERT_TRUE(folder->end_what_ranks_left(ignore_store_event));
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
TEST_F(run_folder_test, an_end_without_a_journal_leaves_nothing_of_ranks) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(begin(*folder));
  auto child = open_pidfd(fork_in_a_rank(*folder));
  auto program = start_sleep(token_in(run));
  lose_spawner();
  auto ended = folder->end_what_ranks_left(
    [](store_event) -> expected<void> { return failure(ec::storage, "full"); });
  EXPECT_FALSE(ended);
  EXPECT_TRUE(has_ended(child, 0));
  auto reaped = ::waitpid(program, nullptr, WNOHANG);
  EXPECT_EQ(reaped, program);
  if (reaped != program)
    end(program);
}

// Only the lock identifies them: they have the environment of the spawner.
TEST_F(run_folder_test, an_attempt_ends_what_ranks_have_forked) {
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
TEST_F(run_folder_test, a_search_that_was_given_up_kills_nothing_later) {
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

TEST_F(run_folder_test, an_attempt_notes_that_it_could_not_look_for_programs) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(begin(*first));
  auto left = start_sleep(token_in(run));
  first.reset();
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  auto few = before;
  few.rlim_cur = 256;
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::vector<unique_fd> rest;
  for (unique_fd x; (x = unique_fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)});)
    rest.push_back(std::move(x));
  rest.pop_back(); // For the file itself.
  auto begun = begin(*second);
  ::setrlimit(RLIMIT_NOFILE, &before);
  end(left);
  ASSERT_TRUE(begun) << begun.error().message;
  ASSERT_EQ(begun->size(), 1u);
  EXPECT_EQ(begun->front().kind, "programs_not_searched");
  EXPECT_TRUE(to_string(begun->front()).find("Too many open files")
              != std::string::npos)
    << to_string(begun->front());
}

// A child that knows nothing of a lock keeps it.
TEST_F(run_folder_test, no_child_gets_a_lock_that_is_being_opened) {
  auto folder = held_folder::open(storage.path()).value();
  auto path = storage / "lock";
  write_bytes(path, "");
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  std::atomic<bool> is_over = false;
  std::thread opener{[&] {
    while (!is_over)
      EXPECT_TRUE(own_lock::open(folder, "lock", O_RDWR, "open"));
  }};
  auto got_one = 0;
  for (int i = 0; i < 300; ++i) {
    auto child = ::fork();
    if (child == 0) {
      struct stat found {};
      for (int fd = 0; fd < 256; ++fd)
        if (::fstat(fd, &found) == 0 && is_same_file(found, file))
          ::_exit(1);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    got_one += status == 0 ? 0 : 1;
  }
  is_over = true;
  opener.join();
  EXPECT_EQ(got_one, 0);
}

// As one that waits for a device: here a tracer keeps it from its end.
TEST_F(run_folder_test, a_program_that_cannot_be_killed_is_listed) {
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
  EXPECT_TRUE(says(refused.error(), "pid " + std::to_string(left)))
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

TEST_F(run_folder_test, a_process_that_cannot_be_read_holds_no_start_up) {
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

TEST_F(run_folder_test, the_journal_names_what_was_killed_of_another_attempt) {
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

// Its owner may still close the number, which must not be another file's then.
TEST_F(run_folder_test, a_child_without_a_free_descriptor_keeps_the_numbers) {
  auto folder = held_folder::open(storage.path()).value();
  auto file = [&folder](const char* name) {
    return own_lock::open(folder, name, O_RDWR | O_CREAT, "open").value();
  };
  own_lock locks[] = {file("a"), file("b")};
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  auto few = before;
  few.rlim_cur = 256;
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::vector<unique_fd> rest;
  for (unique_fd x; (x = unique_fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)});)
    rest.push_back(std::move(x));
  auto child = ::fork();
  if (child == 0) {
    auto is_null = [](const own_lock& x) {
      struct stat found {};
      return ::fstat(x.file().get(), &found) == 0 && S_ISCHR(found.st_mode);
    };
    ::_exit(is_null(locks[0]) && is_null(locks[1]) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(rest.empty());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Removing the file excludes no rank from its attempt.
TEST_F(run_folder_test, ranks_join_an_attempt_whose_file_was_removed) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  fs::remove(run / "ranks");
  auto rank = join_attempt(folder->ticket().value());
  EXPECT_TRUE(rank) << rank.error().message;
}

TEST_F(run_folder_test, an_attempt_waits_for_the_processes_of_earlier_ones) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  auto ticket = first->ticket().value();
  int ends[2], ready[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::pipe(ready), 0);
  auto rank = ::fork();
  if (rank == 0) { // has what a rank has, and nothing else of the driver's
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
  char has_closed_the_rest;
  ASSERT_EQ(::read(ready[0], &has_closed_the_rest, 1), 1);
  ::close(ready[0]);
  // The driver's own restart, and the next driver.
  EXPECT_FALSE(first->await_ranks(std::chrono::milliseconds{0}));
  first.reset();
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  auto refused = second->await_ranks(std::chrono::milliseconds{20});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::timeout);
  EXPECT_TRUE(says(refused.error(), "pid " + std::to_string(rank)))
    << refused.error().message;
  auto stopped =
    second->await_ranks(std::chrono::hours{1}, [] { return true; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ec::stopped);
  ::close(ends[1]);
  ASSERT_TRUE(second->await_ranks(std::chrono::seconds{60}));
  ::waitpid(rank, nullptr, 0);
}
