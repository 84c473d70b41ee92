#include "troupe/runtime/process/stack_dump.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/process/rank_commands.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"
#include "troupe/runtime/process/process_vitals.hpp"
#include "troupe/runtime/process/threads.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

// Functions that the program does not export, with names that a stack shows:
// one each, which compilers would otherwise make of the same code.

[[gnu::noinline, gnu::no_icf]] void main_waits_here(int fd) {
  char byte = 0;
  while (::read(fd, &byte, 1) != 0) // EINTR after the dump
    continue;
}

[[gnu::noinline, gnu::no_icf]] void thread_waits_here(int fd) {
  char byte = 0;
  while (::read(fd, &byte, 1) != 0)
    continue;
}

/// A child with a second thread; it answers requests for its stacks.
class stack_dump_test : public testing::Test {
protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer holds signals back from waiting threads";
#endif
  }

  void start(bool answers, bool thread_is_deaf = false) {
    auto ready = make_pipe();
    auto let_go = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      let_go.writer.reset();
      ready.reader.reset();
      if (answers)
        answer_with_stacks(path_);
      auto other = start_thread([&, fd = let_go.reader.get()] {
        ::pthread_setname_np(::pthread_self(), "other-thread");
        if (thread_is_deaf) {
          sigset_t all;
          sigfillset(&all);
          ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        }
        ready.writer.reset();
        thread_waits_here(fd);
      });
      main_waits_here(let_go.reader.get());
      other->join();
      ::_exit(0);
    }
    ready.writer.reset();
    release_ = std::move(let_go.writer);
    read_all(ready.reader.get());
    while (vitals_of(pid_)->busy) // until both threads wait
      continue;
  }

  void TearDown() override {
    release_.reset();
    if (pid_ > 0) {
      int status = 0;
      ::waitpid(pid_, &status, 0);
      EXPECT_EQ(status, 0) << "the child did not live on";
    }
  }

  /// Everything that the child writes into its file, which is then removed.
  std::string read_stacks() {
    while (bytes_of(path_).find("== end\n") == std::string::npos
           || has_open(path_))
      continue;
    auto text = bytes_of(path_);
    fs::remove(path_);
    return text;
  }

  /// The folders of the child's threads.
  std::vector<fs::path> tasks() const {
    std::vector<fs::path> result;
    boost::system::error_code gone;
    fs::directory_iterator i{"/proc/" + std::to_string(pid_) + "/task", gone};
    for (; !gone && i != fs::directory_iterator{}; i.increment(gone))
      result.push_back(i->path());
    return result;
  }

  /// Whether the child has *path* open.
  bool has_open(const fs::path& path) const {
    boost::system::error_code gone;
    fs::directory_iterator i{"/proc/" + std::to_string(pid_) + "/fd", gone};
    for (; !gone && i != fs::directory_iterator{}; i.increment(gone)) {
      boost::system::error_code closed;
      if (fs::read_symlink(i->path(), closed) == path)
        return true;
    }
    return false;
  }

  temporary_folder folder_;
  std::string path_ = (folder_ / "stacks").string();
  pid_t pid_ = -1;
  unique_fd release_;
};

TEST_F(stack_dump_test, a_process_writes_the_stacks_of_all_its_threads) {
  start(true);
  ASSERT_TRUE(ask_for_stacks(pid_));
  auto text = read_stacks();
  EXPECT_THAT(text, HasSubstr("stacks of process " + std::to_string(pid_)));
  EXPECT_THAT(text, HasSubstr("main_waits_here"));
  EXPECT_THAT(text, HasSubstr("(other-thread)"));
  EXPECT_THAT(text, HasSubstr("thread_waits_here"));
  EXPECT_THAT(text, HasSubstr("== end")) << text;
}

TEST_F(stack_dump_test, a_process_answers_again_and_again) {
  start(true);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(ask_for_stacks(pid_));
    EXPECT_THAT(read_stacks(), HasSubstr("thread_waits_here"));
  }
}

TEST_F(stack_dump_test, a_thread_that_blocks_the_signal_is_not_waited_for) {
  start(true, true);
  ASSERT_TRUE(ask_for_stacks(pid_));
  auto text = read_stacks();
  EXPECT_THAT(text, HasSubstr("(other-thread)\nblocks the signal"));
  EXPECT_THAT(text, HasSubstr("main_waits_here"));
  for (auto& task : tasks())
    EXPECT_THAT(bytes_of(task / "status"),
                HasSubstr("\nSigPnd:\t0000000000000000\n"))
      << "it was asked";
}

// The parent of a vfork waits where no handler runs.
TEST_F(stack_dump_test, many_threads_that_cannot_answer_hold_up_a_dump_once) {
  auto let_go = make_pipe();
  pid_ = ::fork();
  if (pid_ == 0) {
    let_go.writer.reset();
    answer_with_stacks(path_);
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i)
      threads.push_back(*start_thread([fd = let_go.reader.get()] {
        auto child = ::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
          main_waits_here(fd);
          ::_exit(0);
        }
        ::waitpid(static_cast<pid_t>(child), nullptr, 0);
      }));
    main_waits_here(let_go.reader.get());
    for (auto& x : threads)
      x.join();
    ::_exit(0);
  }
  release_ = std::move(let_go.writer);
  auto waits = [](const fs::path& task) {
    return bytes_of(task / "status").find("\nState:\tD") != std::string::npos;
  };
  for (std::ptrdiff_t n = 0; n < 6;) {
    auto all = tasks();
    n = std::ranges::count_if(all, waits);
  }
  ASSERT_TRUE(ask_for_stacks(pid_));
  auto text = read_stacks();
  EXPECT_THAT(text, HasSubstr("does not answer: it has ended or is in an"));
  EXPECT_THAT(text, HasSubstr("does not answer at once"));
  EXPECT_THAT(text, HasSubstr("main_waits_here"));
}

TEST_F(stack_dump_test, a_pipe_in_the_place_of_the_file_holds_up_no_one) {
  start(true);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(ask_for_stacks(pid_));
} // The child ends as requested.

TEST_F(stack_dump_test, a_process_that_does_not_answer_is_left_alone) {
  start(false);
  EXPECT_FALSE(ask_for_stacks(pid_));
}

TEST_F(stack_dump_test, a_process_that_has_ended_is_not_asked) {
  start(true);
  release_.reset();
  ::waitpid(pid_, nullptr, 0);
  EXPECT_FALSE(ask_for_stacks(pid_));
  pid_ = -1;
}

TEST(symbol_table_test, a_file_that_is_cut_has_no_symbols_and_does_no_harm) {
  temporary_folder folder;
  auto whole = bytes_of("/proc/self/exe");
  auto path = (folder / "cut").string();
  for (std::size_t part = 0; part < 16; ++part) {
    write_bytes(path, whole.substr(0, whole.size() * part / 16));
    symbol_table symbols;
    EXPECT_FALSE(symbols.open(path.c_str(), nullptr));
    EXPECT_EQ(symbols.find(&path).name, "");
  }
  symbol_table symbols;
  EXPECT_FALSE(symbols.open((folder / "missing").c_str(), nullptr));
  EXPECT_TRUE(symbols.open("/proc/self/exe", nullptr));
}

TEST_F(stack_dump_test, a_process_that_was_forked_off_does_not_answer) {
  pid_ = ::fork();
  if (pid_ == 0) {
    answer_with_stacks(path_);
    auto signal = stack_signal();
    ::_exit(end_of_child(signal) == signal ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(path_));
}

} // namespace
} // namespace troupe::internal::test
