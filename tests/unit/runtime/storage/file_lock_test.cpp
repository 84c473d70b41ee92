#include "troupe/runtime/storage/file_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/few_descriptors.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/process/descriptor.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

class file_lock_test : public testing::Test {
protected:
  temporary_folder storage;
};

// A child that knows nothing of a lock keeps it.
TEST_F(file_lock_test, no_child_gets_a_lock_that_is_being_opened) {
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

TEST_F(file_lock_test, a_signed_lock_names_its_owner_to_who_comes_later) {
  auto folder = held_folder::open(storage.path()).value();
  write_bytes(storage / "lock", "an earlier owner");
  auto first = take_signed_lock(folder, "lock", "pid 7").value();
  EXPECT_TRUE(first.lock);
  auto second = take_signed_lock(folder, "lock", "pid 8").value();
  EXPECT_FALSE(second.lock);
  EXPECT_EQ(second.holder, "pid 7");
}

// Its owner may still close the number, which must not be another file's then.
TEST_F(file_lock_test, a_child_without_a_free_descriptor_keeps_the_numbers) {
  auto folder = held_folder::open(storage.path()).value();
  auto file = [&folder](const char* name) {
    return own_lock::open(folder, name, O_RDWR | O_CREAT, "open").value();
  };
  own_lock locks[] = {file("a"), file("b")};
  few_descriptors none;
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
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
