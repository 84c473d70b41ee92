#include "troupe/runtime/process/processes.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/few_descriptors.hpp"
#include "tests/support/sleeping_program.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/process/process_modes.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

/// No two tests, nor two runs of this program, look for the same processes.
std::string variable_of(const char* test) {
  return "TROUPE_PROCESS_TREE_" + std::to_string(::getpid()) + "=" + test;
}

/// A process that stands at *offset* of *path*, with or without a shared lock.
pid_t start_reader(const std::string& path, off_t offset, bool is_locked) {
  auto ready = make_pipe();
  auto result = ::fork();
  if (result == 0) {
    unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (is_locked)
      ::flock(file.get(), LOCK_SH);
    if (::lseek(file.get(), offset, SEEK_SET) == offset)
      (void) !::write(ready.writer.get(), "r", 1);
    for (;;)
      ::pause();
  }
  char byte = 0;
  EXPECT_EQ(::read(ready.reader.get(), &byte, 1), 1);
  return result;
}

} // namespace

TEST(process_tree_test, knows_which_processes_are_alive) {
  auto me = own_identity();
  EXPECT_TRUE(is_alive(me));
  auto another = me;
  another.start += "0";
  EXPECT_FALSE(is_alive(another)); // The number was used again.
  auto child = ::fork();
  if (child == 0)
    ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(
    ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  // It is still in /proc, with its number and its start, until it is collected.
  auto its = me;
  its.pid = child;
  std::ifstream stat{"/proc/" + std::to_string(child) + "/stat"};
  std::string field;
  for (int i = 0; i < 22; ++i)
    stat >> field;
  its.start = field;
  EXPECT_FALSE(is_alive(its));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_alive(its));
}

TEST(process_tree_test, lists_children_and_what_they_started) {
  auto ready = make_pipe();
  auto child = ::fork();
  if (child == 0) {
    auto grandchild = ::fork();
    if (grandchild == 0)
      for (;;)
        ::pause();
    (void) !::write(ready.writer.get(), &grandchild, sizeof(grandchild));
    for (;;)
      ::pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(ready.reader.get(), &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  auto all = descendants_of(::getpid());
  EXPECT_EQ(std::ranges::count(all, child), 1);
  EXPECT_EQ(std::ranges::count(all, grandchild), 1);
  EXPECT_EQ(descendants_of(child), std::vector{grandchild});
  EXPECT_EQ(descendants_of(grandchild), std::vector<pid_t>{});
  ::kill(grandchild, SIGKILL);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(process_tree_test, reports_that_it_could_not_search_without_descriptors) {
  auto variable = variable_of("blind");
  auto stranger = start_sleep({variable});
  {
    few_descriptors none;
    auto seen = end_processes_with(variable, std::chrono::minutes{1});
    EXPECT_EQ(seen.blind, EMFILE);
    EXPECT_TRUE(seen.gone.empty());
  }
  auto seen = end_processes_with(variable, std::chrono::minutes{1});
  EXPECT_EQ(seen.blind, 0);
  EXPECT_EQ(seen.gone, std::vector<pid_t>{stranger});
  ::waitpid(stranger, nullptr, 0);
}

// One that a rank started to continue its run has the rank's variables.
TEST(process_tree_test, spares_those_that_it_belongs_together_with) {
  ::setenv(kin_variable, std::to_string(::getpid()).c_str(), 1);
  auto program = start_program("spare_relatives");
  ::unsetenv(kin_variable);
  EXPECT_EQ(read_all(program.output.get()),
            "parent\nmember of the group\nchild\nstranger gone\n");
  EXPECT_EQ(program.wait(), 0);
}

TEST(process_tree_test,
     ends_processes_that_inherited_a_file_but_not_its_opener) {
  temporary_folder folder;
  auto path = (folder / "signed").string();
  auto said = make_pipe();
  auto end = make_pipe();
  auto opener = ::fork();
  if (opener == 0) {
    end.writer.reset();
    unique_fd file{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    unique_fd unsigned_file{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
    ::flock(file.get(), LOCK_SH);
    sign_offset(file);
    pid_t pids[2];
    for (auto& pid : pids) {
      pid = ::fork();
      if (pid == 0) {
        ::setsid();
        if (&pid == &pids[1])
          file.reset(); // What it inherited was never signed.
        char byte = 0;
        (void) !::write(said.writer.get(), "r", 1);
        (void) !::read(end.reader.get(), &byte, 1);
        ::_exit(0);
      }
    }
    (void) !::write(said.writer.get(), "r", 1);
    char byte = 0;
    (void) !::read(end.reader.get(), &byte, 1);
    for (auto pid : pids) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      (void) !::write(said.writer.get(), WIFSIGNALED(status) ? "k" : "e", 1);
    }
    ::_exit(0);
  }
  said.writer.reset();
  char byte = 0;
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(::read(said.reader.get(), &byte, 1), 1);
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  auto killed = end_inheritors(file, "signed", std::chrono::minutes{1});
  EXPECT_EQ(killed.gone.size(), 1u);
  EXPECT_EQ(processes_with(file, "signed").size(), 2u);
  EXPECT_EQ(processes_with(file, "another"), std::vector<pid_t>{});
  end.writer.reset();
  EXPECT_EQ(read_all(said.reader.get()), "ke");
  ::waitpid(opener, nullptr, 0);
}

// A reader at the end of the file stands at the number of some process.
TEST(process_tree_test, spares_readers_of_a_file_at_any_offset) {
  temporary_folder folder;
  auto path = (folder / "signed").string();
  auto open_file = [&] {
    return unique_fd{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  };
  std::string text(48, 'x');
  off_t signature = 0;
  {
    auto file = open_file();
    ASSERT_EQ(::write(file.get(), text.data(), text.size()), 48);
    sign_offset(file);
    signature = ::lseek(file.get(), 0, SEEK_CUR);
  }
  ASSERT_GT(signature, 48);
  std::vector<pid_t> readers{start_reader(path, 48, false),
                             start_reader(path, 48, true),
                             start_reader(path, signature / 2 + 1, true),
                             start_reader(path, signature, false)};
  auto file = open_file();
  ASSERT_EQ(::flock(file.get(), LOCK_SH), 0);
  sign_offset(file);
  auto heir = ::fork();
  while (heir == 0)
    ::pause();
  struct stat found {};
  ASSERT_EQ(::fstat(file.get(), &found), 0);
  auto killed = end_inheritors(found, "signed", std::chrono::minutes{1});
  EXPECT_EQ(killed.gone, std::vector<pid_t>{heir});
  ::waitpid(heir, nullptr, 0);
  for (auto reader : readers) {
    EXPECT_EQ(::waitpid(reader, nullptr, WNOHANG), 0);
    ::kill(reader, SIGKILL);
    ::waitpid(reader, nullptr, 0);
  }
}
