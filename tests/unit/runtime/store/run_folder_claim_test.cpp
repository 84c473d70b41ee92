// Who may write to a run.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/runtime/store/run_folder_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/callback_cursor.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

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

} // namespace

TEST_F(run_folder_test, refuses_a_second_driver_although_the_lock_was_removed) {
  auto first = open().value();
  auto start = first->begin_attempt().value();
  ASSERT_TRUE(report(*first, start.attempt, 0, "A"));
  fs::remove(run / "lock");
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ec::conflict);
  EXPECT_TRUE(mentions(second.error(), "pid " + std::to_string(::getpid())))
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
  auto cursor = callback_cursor::open(*first).value();
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
    EXPECT_TRUE(mentions(old.error(), "pid " + std::to_string(::getpid())))
      << old.error().message;
    ASSERT_TRUE(report(*second, b.attempt, i, "B", with_file));
    acknowledged += 'B';
  }
  EXPECT_FALSE(first->append_event("note", a.attempt));
  EXPECT_FALSE(first->begin_attempt());
  EXPECT_FALSE(cursor.mark_delivered(5));
  auto state = bytes_of(run / "state.json");
  auto staged = staging::create(run, b.attempt, 0).value();
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
  auto staged = staging::create(run, b.attempt, 0).value();
  write_bytes(staged.path() / "weights", "half");
  auto state = bytes_of(run / "state.json");
  auto commit = report(*first, 4, 1, "A", true);
  ASSERT_FALSE(commit);
  EXPECT_TRUE(mentions(commit.error(), run.string())) << commit.error().message;
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
  EXPECT_TRUE(mentions(again.error(), "state.json")) << again.error().message;
  EXPECT_FALSE(store->finish(run_status_kind::finished));
  EXPECT_EQ(bytes_of(run / "state.json"), other);
}

TEST_F(run_folder_test, says_when_a_driver_on_another_host_may_still_write) {
  {
    auto folder = run_folder::open(storage.path(), "r").value();
    EXPECT_FALSE(folder->claim(3).value());
  }
  // A driver that died here has certainly ended.
  write_bytes(run / "attempts" / "3", to_line(own_identity()));
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
  write_bytes(run / "attempts" / "notes.txt", "not a claim");
  auto latest = latest_claim(run).value();
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->attempt, 4u);
  EXPECT_EQ(latest->driver, own_identity());
  // One that gave the run back does not write.
  folder.reset();
  EXPECT_TRUE(fs::exists(run / "attempts" / "4"));
  EXPECT_FALSE(latest_claim(run).value());
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
  EXPECT_EQ(files_in(run / "attempts"), std::vector<std::string>{"4"});
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

// A child of fork() has the driver's descriptors, those that a rank is about to
// get, too.
TEST_F(run_folder_test, a_child_of_the_program_does_not_hold_its_run) {
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
TEST_F(run_folder_test, a_child_of_a_killed_driver_does_not_hold_its_run) {
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
  EXPECT_TRUE(mentions(refused.error(), std::to_string(driver)));
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

TEST_F(run_folder_test, a_child_of_the_driver_releases_no_lock) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  auto child = ::fork();
  if (child == 0) {
    folder->release();
    folder.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(run_folder::open(storage.path(), "r"));
  EXPECT_TRUE(folder->check());
  EXPECT_TRUE(latest_claim(run).value());
}
