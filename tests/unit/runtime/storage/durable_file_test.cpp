#include "troupe/runtime/storage/durable_file.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/child.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/file_copy.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST(durable_file_test, replaces_a_file_and_leaves_no_temporary_one) {
  temporary_folder folder;
  ASSERT_TRUE(replace_file(folder / "x", "one"));
  ASSERT_TRUE(replace_file(folder / "x", "two"));
  EXPECT_EQ(bytes_of(folder / "x"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator{folder.path()},
                          fs::directory_iterator{}),
            1);
}

TEST(durable_file_test, names_path_and_reason_of_a_failure) {
  temporary_folder folder;
  auto done = replace_file(folder / "missing" / "x", "one");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ec::storage);
  EXPECT_NE(done.error().message.find((folder / "missing").string()),
            std::string::npos);
  EXPECT_NE(done.error().message.find("No such file or directory"),
            std::string::npos);
}

TEST(durable_file_test, keeps_the_old_file_when_fsync_fails) {
  temporary_folder folder;
  ASSERT_TRUE(replace_file(folder / "x", "one"));
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto done = replace_file(folder / "x", "two");
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("Input/output error"), std::string::npos);
  EXPECT_EQ(bytes_of(folder / "x"), "one");
  EXPECT_FALSE(fs::exists(folder / "x.new"));
}

TEST(durable_file_test,
     saves_the_sync_of_the_folder_where_the_old_file_may_stay) {
  temporary_folder folder;
  auto replace = [&](after_power_cut left) {
    // The first sync is that of the file, the second that of the folder.
    EXPECT_TRUE(arm_failpoint("storage.sync_file:2=eio"));
    auto done = replace_file(folder / "x", "x", left);
    EXPECT_TRUE(arm_failpoint(""));
    return done.has_value();
  };
  EXPECT_FALSE(replace(after_power_cut::new_or_old_file)) << "no old file yet";
  EXPECT_TRUE(replace(after_power_cut::new_or_old_file));
  EXPECT_FALSE(replace(after_power_cut::new_file));
}

TEST(durable_file_test, keeps_the_old_file_when_the_disk_is_full) {
  temporary_folder folder;
  small_disk disk{folder / "disk", "64k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  ASSERT_TRUE(replace_file(disk.path() / "x", "one"));
  auto done = replace_file(disk.path() / "x", std::string(128 * 1024, 'x'));
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("No space left on device"),
            std::string::npos);
  EXPECT_EQ(bytes_of(disk.path() / "x"), "one");
}

TEST(durable_file_test, overwrites_the_first_bytes_of_a_file) {
  temporary_folder folder;
  auto path = folder / "x";
  write_bytes(path, "007 of 8");
  auto file = open_file(path, O_RDWR, "open");
  ASSERT_TRUE(file);
  ASSERT_TRUE(overwrite(*file, path, "008"));
  EXPECT_EQ(bytes_of(path), "008 of 8");
  auto read_only = open_file(path, O_RDONLY, "open");
  ASSERT_TRUE(read_only);
  auto done = overwrite(*read_only, path, "009");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message,
            "cannot write " + path.string() + ": Bad file descriptor");
}

TEST(durable_file_test, refuses_to_write_what_it_would_not_read) {
  EXPECT_TRUE(check_size("/run/x", "12345", 5));
  EXPECT_EQ(check_size("/run/x", "12345", 4).error(),
            (error{ec::storage, "/run/x would have 5 bytes, the limit is 4"}));
}

TEST(durable_file_test, refuses_to_read_more_than_its_limit) {
  temporary_folder folder;
  write_bytes(folder / "x", "12345");
  EXPECT_EQ(read_file(folder / "x", 5).value(), "12345");
  EXPECT_EQ(read_file(folder / "x", 4).error().code, ec::corrupt);
}

TEST(durable_file_test, reads_of_a_range_what_the_file_has) {
  temporary_folder folder;
  ASSERT_TRUE(write_new_file(folder / "x", "0123456789"));
  auto file = open_file(folder / "x", O_RDONLY, "open").value();
  EXPECT_EQ(read_range(file, folder / "x", 2, 3).value(), "234");
  EXPECT_EQ(read_range(file, folder / "x", 8, 3).value(), "89");
  EXPECT_EQ(read_range(file, folder / "x", 11, 3).value(), "");
}

TEST(durable_file_test, leaves_nothing_in_a_folder_that_is_renamed_meanwhile) {
  temporary_folder folder;
  auto here = folder / "here";
  auto moved = folder / "moved";
  fs::create_directory(here);
  {
    std::jthread mover{[&](const std::stop_token& end) {
      while (!end.stop_requested()) {
        fs::rename(here, moved);
        fs::rename(moved, here);
      }
    }};
    auto replaced = 0, refused = 0;
    while (replaced < 100 || refused < 10)
      ++(replace_file(here / "a", "x") ? replaced : refused);
  }
  EXPECT_TRUE(fs::exists(here / "a"));
  EXPECT_FALSE(fs::exists(here / "a.new"));
}

TEST(durable_file_test, does_not_rename_over_something) {
  temporary_folder folder;
  fs::create_directory(folder / "a");
  fs::create_directory(folder / "b");
  EXPECT_EQ(rename_new(folder / "a", folder / "b").error().code, ec::conflict);
  EXPECT_TRUE(rename_new(folder / "a", folder / "c"));
}

TEST(durable_file_test, writes_through_no_link_and_into_no_pipe) {
  temporary_folder folder;
  write_bytes(folder / "theirs", "12345");
  fs::create_symlink("theirs", folder / "link");
  fs::create_symlink("nowhere", folder / "dangling");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  auto expect_refused = [&](const char* name, const char* reason) {
    auto path = folder / name;
    for (int flags : {O_WRONLY, O_WRONLY | O_CREAT | O_APPEND, O_RDWR | O_CREAT,
                      O_WRONLY | O_TRUNC}) {
      auto file = open_file(path, flags, "open");
      ASSERT_FALSE(file) << name << ", flags " << flags;
      EXPECT_EQ(file.error().code, ec::storage);
      EXPECT_NE(file.error().message.find(path.string()), std::string::npos);
      EXPECT_NE(file.error().message.find(reason), std::string::npos)
        << file.error().message;
    }
  };
  expect_refused("link", "it is a symbolic link");
  expect_refused("dangling", "it is a symbolic link");
  expect_refused("pipe", "it is not a file");
  EXPECT_EQ(bytes_of(folder / "theirs"), "12345");
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
  // Folders above may be links, and what is read.
  EXPECT_EQ(read_file(folder / "link", 5).value(), "12345");
  fs::create_directory(folder / "folder");
  fs::create_directory_symlink("folder", folder / "linked_folder");
  EXPECT_TRUE(
    open_file(folder / "linked_folder" / "x", O_WRONLY | O_CREAT, "open"));
}

TEST(durable_file_test, does_not_wait_for_the_writer_of_a_pipe) {
  temporary_folder folder;
  auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("pipe", folder / "link");
  for (auto path : {pipe, folder / "link"}) {
    auto text = read_file(path, 5);
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code, ec::storage);
    EXPECT_EQ(text.error().message,
              "cannot open " + path.string() + ": it is a pipe");
  }
  // What is read without waiting does as before.
  auto nothing = open_file("/dev/null", O_RDONLY, "open");
  ASSERT_TRUE(nothing);
  EXPECT_EQ(::fcntl(nothing->get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(durable_file_test, makes_files_that_only_their_owner_can_read) {
  temporary_folder folder;
  ASSERT_TRUE(replace_file(folder / "replaced", "x"));
  auto held = open_file(folder.path(), O_RDONLY | O_DIRECTORY, "open folder");
  ASSERT_TRUE(held);
  ASSERT_TRUE(replace_shared_file(*held, folder / "shared", "x"));
  ASSERT_TRUE(write_new_file(folder / "new", "x"));
  ASSERT_TRUE(open_file(folder / "opened", O_RDWR | O_CREAT, "open"));
  for (auto name : {"replaced", "shared", "new", "opened"}) {
    struct stat found {};
    ASSERT_EQ(::stat((folder / name).c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, mode_t{0600}) << name;
  }
}

TEST(durable_file_test, takes_only_a_path_that_leads_nowhere_for_missing) {
  temporary_folder folder;
  write_bytes(folder / "file", "12345");
  fs::create_symlink("file", folder / "link");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(look_up(folder / "file")->size, 5u);
  EXPECT_TRUE(look_up(folder.path())->is_folder());
  EXPECT_TRUE(look_up(folder / "link")->is_file());
  EXPECT_TRUE(look_up_link(folder / "link")->is_link());
  EXPECT_FALSE(look_up(folder / "missing")->exists());
  EXPECT_FALSE(look_up(folder / "file" / "x")->exists()); // ENOTDIR
  auto expect_error = [](const fs::path& path, const char* reason) {
    auto found = look_up(path);
    ASSERT_FALSE(found) << path;
    EXPECT_EQ(found.error().code, ec::storage);
    EXPECT_NE(found.error().message.find(path.string()), std::string::npos);
    EXPECT_NE(found.error().message.find(reason), std::string::npos)
      << found.error().message;
  };
  expect_error(folder / "loop", "Too many levels of symbolic links");
  expect_error(folder / std::string(300, 'x'), "File name too long");
}

TEST(durable_file_test, lists_the_files_of_a_folder_or_says_why_it_cannot) {
  temporary_folder folder;
  fs::create_directories(folder / "a" / "b");
  write_bytes(folder / "z", "");
  write_bytes(folder / "a" / "b" / "y", "");
  fs::create_symlink("z", folder / "link");
  fs::create_symlink("nowhere", folder / "broken");
  EXPECT_EQ(files_below(folder.path()).value(),
            (std::vector<fs::path>{folder / "a" / "b" / "y", folder / "link",
                                   folder / "z"}));
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(files_below(folder.path()).error().code, ec::storage);
}

TEST(durable_file_test, makes_folders_and_refuses_files_in_their_place) {
  temporary_folder folder;
  EXPECT_TRUE(make_folders(folder / "a" / "b" / "c"));
  EXPECT_TRUE(make_folders(folder / "a" / "b" / "c"));
  EXPECT_TRUE(fs::is_directory(folder / "a" / "b" / "c"));
  write_bytes(folder / "file", "x");
  auto done = make_folders(folder / "file");
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("Not a directory"), std::string::npos);
}

TEST(checksum_test, of_a_file_is_that_of_its_bytes) {
  temporary_folder folder;
  for (auto size : {std::size_t{0}, std::size_t{1}, std::size_t{256 * 1024},
                    std::size_t{1000003}}) {
    std::string bytes(size, 'a');
    for (std::size_t i = 0; i < size; ++i)
      bytes[i] = static_cast<char>(i * 7 + i / 251);
    write_bytes(folder / "x", bytes);
    auto file = open_file(folder / "x", O_RDONLY, "open");
    ASSERT_TRUE(file);
    auto digest = digest_file(*file, folder / "x");
    ASSERT_TRUE(digest);
    EXPECT_EQ(digest->size, size);
    EXPECT_EQ(digest->checksum, checksum(bytes));
  }
}

TEST(checksum_test, is_xxh3_as_published) {
  // Test vector of XXH3-64 with seed 0 for the empty input.
  EXPECT_EQ(checksum_text(checksum("")), "2d06800538d394c2");
}

TEST(failpoint_test, ends_the_process_at_the_pass_it_is_armed_for) {
  auto status = run_in_child([] {
    (void) arm_failpoint("here:2=exit");
    failpoint("elsewhere");
    failpoint("here");
    failpoint("here");
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 134);
  status = run_in_child([] {
    (void) arm_failpoint("here");
    failpoint("here");
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(failpoint_test, fails_from_one_pass_on_and_beside_others) {
  ASSERT_TRUE(arm_failpoint("here:2+=eio,there=enospc"));
  EXPECT_EQ(failpoint("here"), 0);
  EXPECT_EQ(failpoint("here"), EIO);
  EXPECT_EQ(failpoint("here"), EIO);
  EXPECT_EQ(failpoint("there"), ENOSPC);
  EXPECT_EQ(failpoint("there"), 0);
  ASSERT_TRUE(arm_failpoint(""));
  EXPECT_EQ(failpoint("here"), 0);
}

TEST(failpoint_test, refuses_what_it_does_not_understand) {
  EXPECT_EQ(arm_failpoint("x=explode").error().code, ec::invalid_argument);
  EXPECT_EQ(arm_failpoint("x:none").error().code, ec::invalid_argument);
  EXPECT_EQ(failpoint("x"), 0);
}

TEST(file_copy_test, copies_what_the_kernel_makes_up) {
  temporary_folder folder;
  ASSERT_TRUE(copy_file("/proc/version", folder / "x", copy_sync::no));
  EXPECT_EQ(bytes_of(folder / "x"), bytes_of("/proc/version"));
}

TEST(file_copy_test, believes_no_size_that_the_kernel_makes_up) {
  const fs::path shorter{"/sys/devices/system/cpu/online"};
  auto found = look_up(shorter);
  if (!found || bytes_of(shorter).size() >= found->size)
    GTEST_SKIP() << "there is no such " << shorter;
  temporary_folder folder;
  auto ok = copy_file(shorter, folder / "x", copy_sync::no);
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(bytes_of(folder / "x"), bytes_of(shorter));
}

TEST(file_copy_test, distinguishes_permanent_from_transient_failures) {
  temporary_folder folder;
  write_bytes(folder / "a", "a");
  for (auto to : {folder / "a" / "b", folder / "a" / "b" / "c"}) {
    auto ok = copy_file(folder / "a", to, copy_sync::no);
    ASSERT_FALSE(ok);
    EXPECT_EQ(ok.error().code, ec::invalid_argument) << ok.error().message;
  }
  small_disk disk{folder / "disk", "64k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  write_bytes(folder / "large", std::string(1 << 20, 'x'));
  auto ok = copy_file(folder / "large", disk.path() / "x", copy_sync::no);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, ec::storage) << ok.error().message;
}
