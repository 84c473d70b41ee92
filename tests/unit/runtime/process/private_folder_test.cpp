#include "troupe/runtime/process/private_folder.hpp"

#include <cstdlib>
#include <fstream>
#include <utility>

#include <boost/filesystem.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/runtime/process/process_modes.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"

using namespace troupe;
namespace bfs = boost::filesystem;
using testing::StartsWith;

namespace {

struct private_folder_test : testing::Test {
  void SetUp() override {
    bfs::create_directory(root);
    ::setenv("XDG_RUNTIME_DIR", root.c_str(), 1);
  }

  void TearDown() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    bfs::remove_all(root);
  }

  bfs::path root =
    bfs::temp_directory_path() / bfs::unique_path("folders-%%%%%%%%");
};

} // namespace

TEST_F(private_folder_test, lies_in_the_runtime_folder_and_is_ours_alone) {
  auto folder = private_folder::make().value();
  EXPECT_THAT(folder.path(), StartsWith(root.string()));
  struct stat info {};
  ASSERT_EQ(::stat(folder.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(private_folder_test, goes_with_all_that_is_in_it) {
  std::string path;
  {
    auto folder = private_folder::make().value();
    auto moved = std::move(folder);
    path = moved.path();
    std::ofstream{path + "/file"} << "text";
    EXPECT_TRUE(bfs::exists(path + "/file"));
  }
  EXPECT_FALSE(bfs::exists(path));
}

TEST_F(private_folder_test, goes_elsewhere_if_a_socket_would_not_fit) {
  auto deep = root / std::string(90, 'd');
  bfs::create_directory(deep);
  ::setenv("XDG_RUNTIME_DIR", deep.c_str(), 1);
  auto folder = private_folder::make().value();
  EXPECT_THAT(folder.path(), StartsWith("/tmp/"));
}

TEST_F(private_folder_test, removes_what_a_dead_process_left_and_nothing_else) {
  auto program = test::start_program("leave_folder");
  auto stale = test::read_all(program.output.get());
  program.wait();
  stale.pop_back(); // The end of the line.
  ASSERT_TRUE(bfs::exists(stale));
  auto in_use = private_folder::make().value();
  auto other = root / "troupe-of-somebody-else";
  bfs::create_directory(other);
  EXPECT_GE(private_folder::remove_stale(), 1);
  EXPECT_FALSE(bfs::exists(stale));
  EXPECT_TRUE(bfs::exists(in_use.path()));
  EXPECT_TRUE(bfs::exists(other));
}
