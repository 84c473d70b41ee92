// Where the files of a run are, and which folders it takes.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/support/child.hpp"
#include "tests/unit/runtime/store/run_folder_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/store/callback_cursor.hpp"
#include "troupe/runtime/store/end_request.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/text.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

} // namespace

TEST_F(run_folder_test, knows_the_names_of_all_that_a_run_has) {
  auto store = open().value();
  auto start = store->begin_attempt().value();
  ASSERT_TRUE(report(*store, start.attempt, 0, "A", true));
  auto cursor = callback_cursor::open(*store).value();
  auto folder = held_folder::open(run).value();
  ASSERT_TRUE(save_description(folder, describe_run(folder, "r", {}).value()));
  ASSERT_TRUE(send_end_request(folder, {own_identity()}));
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  auto names = files_in(run);
  for (auto& name : names)
    EXPECT_TRUE(run_layout::is_own_name(name)) << name;
  for (auto name : {run_layout::end_request, run_layout::callback_cursor,
                    run_layout::description, run_layout::state})
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  EXPECT_TRUE(run_layout::is_own_name("state.json.new"));
  EXPECT_TRUE(run_layout::is_own_name("run.json.123456"));
  EXPECT_TRUE(run_layout::is_own_name(".owner-7"));
  for (auto name : {"metrics.csv", "logs.1", "notes.txt", "", "."})
    EXPECT_FALSE(run_layout::is_own_name(name)) << name;
}

TEST(run_layout_test, tells_event_files_of_a_run_from_those_of_others) {
  using namespace run_layout;
  const std::string own = "1767225600.node-1.17.01234567-0001";
  EXPECT_TRUE(is_event_file("events.out.tfevents." + own));
  EXPECT_TRUE(is_former_event_file("former." + own));
  EXPECT_TRUE(is_former_event_file("former." + own + ".2"));
  for (auto name :
       {"1767225600.node-1.17.0", "1.h.profile-empty", "1.h.1234567-0001",
        "1.h.01234567-", "1.h.01234567-99999999999999999999", "plan.2", ""}) {
    EXPECT_FALSE(is_event_file(concat("events.out.tfevents.", name))) << name;
    EXPECT_FALSE(is_former_event_file(concat("former.", name))) << name;
  }
  EXPECT_FALSE(is_event_file("x." + own));
  EXPECT_FALSE(is_former_event_file("x." + own));
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
  EXPECT_TRUE(mentions(store.error(), "belongs to user 65534"))
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
    EXPECT_TRUE(
      mentions(store.error(), (run / name).string() + " belongs to user"))
      << store.error().message;
  }
}

TEST_F(run_folder_test, begins_in_no_folder_of_another_program) {
  for (auto name : {"state.json", "run.json", "journal.jsonl", "README.md"}) {
    fs::remove_all(run);
    fs::create_directories(run / "callbacks");
    write_bytes(run / name, "{\"of\": \"another program\"}\n");
    auto before = files_in(run);
    auto store = open();
    ASSERT_FALSE(store) << name;
    EXPECT_EQ(store.error().code, ec::conflict) << store.error().message;
    EXPECT_EQ(files_in(run), before);
    EXPECT_EQ(expect_own_run(run).error().code, ec::invalid_argument) << name;
  }
}

TEST_F(run_folder_test, begins_where_a_start_was_killed_before_its_claim) {
  for (auto name : {"attempts", "checkpoints", "logs", "sinks", ".snapshot"})
    fs::create_directories(run / name);
  write_bytes(run / "lock", "");
  auto store = open();
  EXPECT_TRUE(store) << store.error().message;
}

TEST_F(run_folder_test, is_known_by_one_whole_file_and_begins_by_its_claim) {
  ASSERT_TRUE(open().value()->begin_attempt());
  EXPECT_TRUE(expect_own_run(run));
  write_bytes(run / "metrics.csv", "step,loss\n");
  for (auto name : {"run.json", "state.json"})
    write_bytes(run / name, "damaged");
  EXPECT_TRUE(expect_own_run(run)); // by the first line of its journal
  write_bytes(run / "journal.jsonl", "damaged\n");
  EXPECT_FALSE(expect_own_run(run));
  auto store = open();
  EXPECT_TRUE(store) << store.error().message;
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
    EXPECT_TRUE(mentions(store.error(), "symbolic link"))
      << store.error().message;
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
  EXPECT_FALSE(callback_cursor::open(*store));
  EXPECT_EQ(bytes_of(target), "one line of theirs");
}

TEST_F(run_folder_test, keeps_its_files_to_its_user) {
  auto before = ::umask(0);
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  ASSERT_TRUE(callback_cursor::open(*store));
  ::umask(before);
  for (auto name : {".", "attempts", "logs", "sinks", "checkpoints"})
    EXPECT_EQ(mode_of(run / name), mode_t{0700}) << name;
  for (auto name : {"lock", "run.json", "state.json", "journal.jsonl",
                    "callbacks.told", "attempts/0"})
    EXPECT_EQ(mode_of(run / name), mode_t{0600}) << name;
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
  EXPECT_TRUE(mentions(names.error(), run.string())) << names.error().message;
  EXPECT_EQ(open_files(), before);
}

TEST_F(run_folder_test, makes_names_durable_that_a_killed_start_has_left) {
  fs::create_directory(run);
  const std::pair<const char*, fs::path> syncs[] = {
    {"storage.sync_file=eio", storage.path()},
    {"storage.sync_file:2=eio", storage / ".."}};
  for (auto& [fails, path] : syncs) {
    ASSERT_TRUE(arm_failpoint(fails));
    auto folder = run_folder::open(storage.path(), "r");
    ASSERT_TRUE(arm_failpoint(""));
    ASSERT_FALSE(folder) << fails;
    EXPECT_TRUE(mentions(folder.error(), path.string() + ':'))
      << folder.error().message;
  }
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto folder = run_folder::open_new(storage.path());
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(folder);
  EXPECT_TRUE(mentions(folder.error(), (storage / "..").string() + ':'))
    << folder.error().message;
}

TEST_F(run_folder_test, makes_the_folders_of_a_new_run_durable_at_once) {
  ASSERT_TRUE(arm_failpoint("storage.sync_file:3=eio"));
  auto folder = run_folder::open(storage.path(), "r");
  ASSERT_FALSE(folder);
  EXPECT_TRUE(mentions(folder.error(), run.string() + ':'))
    << folder.error().message;
  EXPECT_EQ(files_in(run), (std::vector<std::string>{"attempts", "checkpoints",
                                                     "lock", "logs", "sinks"}));
  // There is no other sync of them.
  ASSERT_TRUE(arm_failpoint("storage.sync_file:4=eio"));
  EXPECT_TRUE(run_folder::open(storage.path(), "other"));
  ASSERT_TRUE(arm_failpoint(""));
}

// Two drivers that replace a finished run at once.
TEST_F(run_folder_test, moves_no_run_aside_that_has_taken_its_name) {
  auto first = run_folder::open(storage.path(), "r").value();
  fs::rename(run, storage / "by another");
  EXPECT_TRUE(first->move_aside("aside"));
  auto second = run_folder::open(storage.path(), "r").value();
  EXPECT_TRUE(first->move_aside("aside"));
  EXPECT_EQ(files_in(storage.path()),
            (std::vector<std::string>{"by another", "r"}));
  EXPECT_TRUE(second->move_aside("aside"));
  EXPECT_EQ(files_in(storage.path()),
            (std::vector<std::string>{"aside", "by another"}));
}

// A killed start had made the folder above.
TEST_F(run_folder_test, makes_no_folder_in_one_whose_name_is_not_durable) {
  auto above = storage / "above";
  fs::create_directory(above);
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto folder = run_folder::open(above / "runs", "r");
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(folder);
  EXPECT_TRUE(mentions(folder.error(), (above / "..").string() + ':'))
    << folder.error().message;
  EXPECT_TRUE(fs::is_empty(above));
  EXPECT_TRUE(run_folder::open(above / "other" / "runs", "r"));
}

TEST_F(run_folder_test, begins_below_a_folder_that_its_user_may_not_read) {
  auto above = storage / "above";
  auto runs = above / "runs";
  fs::create_directories(runs);
  fs::permissions(runs, fs::all_all);
  auto enter = fs::group_exe | fs::others_exe;
  fs::permissions(above, fs::owner_write | fs::owner_exe | enter);
  fs::permissions(storage.path(), fs::owner_all | enter);
  auto status = run_in_child([&runs] {
    if (::geteuid() == 0 && ::seteuid(54321) != 0)
      ::_exit(3);
    ::_exit(run_folder::open(runs, "r") ? 0 : 2);
  });
  fs::permissions(above, fs::owner_all);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
