#include "troupe/runtime/process/oom_watch.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {
namespace {

/// The files of a machine on which control groups are mounted.
class oom_watch_test : public testing::Test {
protected:
  void write(const std::string& path, const std::string& bytes) {
    auto file = root_ / path;
    fs::create_directories(file.parent_path());
    write_bytes(file, bytes);
  }

  void mount_v2() {
    write("proc/self/mountinfo",
          "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
    write("proc/self/cgroup", "0::/pod/c1\n");
  }

  void kills_v2(int n) {
    write("sys/fs/cgroup/pod/c1/memory.events",
          "low 0\nhigh 0\nmax 7\noom 5\noom_kill " + std::to_string(n)
            + "\noom_group_kill 0\n");
  }

  temporary_folder root_;
};

} // namespace

TEST_F(oom_watch_test, each_kill_explains_one_end) {
  mount_v2();
  kills_v2(2);
  oom_watch watch{root_.path()};
  EXPECT_FALSE(watch.explains_end());
  kills_v2(4);
  EXPECT_TRUE(watch.explains_end());
  EXPECT_TRUE(watch.explains_end());
  EXPECT_FALSE(watch.explains_end());
}

TEST_F(oom_watch_test, kills_before_the_beginning_explain_nothing) {
  mount_v2();
  kills_v2(0);
  oom_watch watch{root_.path()};
  kills_v2(3);
  watch.begin();
  EXPECT_FALSE(watch.explains_end());
  kills_v2(4);
  EXPECT_TRUE(watch.explains_end());
}

TEST_F(oom_watch_test, knows_version_1_beside_a_version_2_without_memory) {
  write("proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "32 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "33 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("proc/self/cgroup", "2:memory:/job\n1:cpu:/other\n0::/\n");
  auto file = "sys/fs/cgroup/memory/job/memory.oom_control";
  write(file, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  oom_watch watch{root_.path()};
  EXPECT_FALSE(watch.explains_end());
  write(file, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_TRUE(watch.explains_end());
}

// As the tasks of a job may be, in groups below that of the job.
TEST_F(oom_watch_test, looks_above_a_group_without_the_memory_controller) {
  mount_v2();
  write("sys/fs/cgroup/pod/memory.events", "oom_kill 1\n");
  oom_watch watch{root_.path()};
  EXPECT_FALSE(watch.explains_end());
  write("sys/fs/cgroup/pod/memory.events", "oom_kill 2\n");
  EXPECT_TRUE(watch.explains_end());
}

TEST_F(oom_watch_test, says_nothing_where_no_kills_are_counted) {
  oom_watch nowhere{root_.path()};
  EXPECT_FALSE(nowhere.explains_end());
  mount_v2();
  write("sys/fs/cgroup/pod/c1/memory.events", "low 0\n");
  oom_watch watch{root_.path()};
  EXPECT_FALSE(watch.explains_end());
}

} // namespace troupe::internal::test
