#include "troupe/runtime/process/usable_cores.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/hosts/agent_facts.hpp"

namespace troupe::internal {
namespace {

using test::temporary_folder;
using test::write_bytes;

/// The files of a machine on which control groups are mounted as
/// in *mounts*, and this process is in those of *groups*.
class usable_cores_test : public testing::Test {
protected:
  void mount(const std::string& mounts, const std::string& groups) {
    write("proc/self/mountinfo", mounts);
    write("proc/self/cgroup", groups);
  }

  void write(const std::string& path, const std::string& bytes) {
    auto file = root_ / path;
    fs::create_directories(file.parent_path());
    write_bytes(file, bytes);
  }

  /// How many cores there seem to be; more than this machine has, so that each
  /// quota can be distinguished from the next.
  std::int64_t cores() { return cores_of_quotas(root_.path()); }

  static constexpr auto v2 =
    "23 1 0:21 / /proc rw - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw\n";
  static constexpr auto v1 =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "
    "rw,cpu,cpuacct\n";
  static constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();

  temporary_folder root_;
};

TEST_F(usable_cores_test, counts_what_the_thread_may_run_on) {
  mount(v2, "0::/\n");
  auto own = own_cores(root_.path());
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(own.count, CPU_COUNT(&set));
  ASSERT_EQ(own.numbers.size(), static_cast<std::size_t>(own.count));
  for (int core : own.numbers)
    EXPECT_TRUE(CPU_ISSET(core, &set));
  EXPECT_FALSE(own.are_shared());
}

TEST_F(usable_cores_test, a_quota_limits_them) {
  mount(v2, "0::/\n");
  write("sys/fs/cgroup/cpu.max", "30000 100000\n");
  auto own = own_cores(root_.path());
  EXPECT_EQ(own.count, 1);
  EXPECT_EQ(own.are_shared(), own.numbers.size() > 1);
  write("sys/fs/cgroup/cpu.max", "1000000000 100000\n");
  EXPECT_FALSE(own_cores(root_.path()).are_shared());
}

TEST_F(usable_cores_test, rounds_a_quota_up) {
  mount(v2, "0::/\n");
  write("sys/fs/cgroup/cpu.max", "800000 100000\n");
  EXPECT_EQ(cores(), 8);
  write("sys/fs/cgroup/cpu.max", "750000 100000\n");
  EXPECT_EQ(cores(), 8);
  write("sys/fs/cgroup/cpu.max", "25000 50000\n");
  EXPECT_EQ(cores(), 1);
}

TEST_F(usable_cores_test, takes_the_lowest_quota_up_the_tree) {
  mount(v2, "0::/kubepods/pod7/c1\n");
  write("sys/fs/cgroup/kubepods/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/kubepods/pod7/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/kubepods/pod7/c1/cpu.max", "600000 100000\n");
  write("sys/fs/cgroup/kubepods/other/cpu.max", "100000 100000\n");
  EXPECT_EQ(cores(), 4);
  write("sys/fs/cgroup/kubepods/pod7/c1/cpu.max", "300000 100000\n");
  EXPECT_EQ(cores(), 3);
  write("sys/fs/cgroup/kubepods/cpu.max", "200000 100000\n");
  EXPECT_EQ(cores(), 2);
}

TEST_F(usable_cores_test, finds_its_container_under_the_names_of_the_host) {
  constexpr auto mounts =
    "30 23 0:26 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  write("sys/fs/cgroup/cpu.max", "600000 100000\n");
  write("sys/fs/cgroup/part/cpu.max", "500000 100000\n");
  mount(mounts, "0::/docker/c1\n");
  EXPECT_EQ(cores(), 6);
  mount(mounts, "0::/docker/c1/part\n");
  EXPECT_EQ(cores(), 5);
  for (auto elsewhere : {"0::/docker/c12/part\n", "0::/../part\n"}) {
    mount(mounts, elsewhere);
    EXPECT_EQ(cores(), 6) << elsewhere;
  }
}

TEST_F(usable_cores_test, knows_quotas_of_version_1) {
  mount(v1, "2:cpuset:/other\n1:cpu,cpuacct:/job/step\n0::/\n");
  EXPECT_EQ(cores(), all);
  write("sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), all);
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "700000\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 7);
  write("sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cores(), 3);
}

TEST_F(usable_cores_test, what_cannot_be_read_limits_nothing) {
  EXPECT_EQ(cores(), all);
  mount(v2, "0::/a\n");
  for (auto text : {"", "max", "max 100000", "-5 100000", "0 100000",
                    "100000 0", "100000", "1e5 100000"}) {
    write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(cores(), all) << text;
  }
  mount("nonsense\n - \n", ":\n");
  EXPECT_EQ(cores(), all);
}

// With the kernel's own files: a process in a control group with a quota.
TEST(own_cores_test, are_limited_by_a_real_control_group) {
  if (own_cores().count < 2)
    GTEST_SKIP() << "one core cannot become fewer";
  auto name = "troupe-test-" + std::to_string(::getpid());
  for (fs::path mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"}) {
    auto group = mount / name;
    boost::system::error_code problem;
    if (!fs::create_directory(group, problem))
      continue;
    if (fs::exists(group / "cpu.max")) {
      write_bytes(group / "cpu.max", "50000 100000");
    } else if (fs::exists(group / "cpu.cfs_quota_us")) {
      write_bytes(group / "cpu.cfs_quota_us", "50000");
    } else {
      fs::remove(group, problem);
      continue;
    }
    auto pid = ::fork();
    if (pid == 0) {
      write_bytes(group / "cgroup.procs", std::to_string(::getpid()));
      auto own = own_cores();
      // All that asks for cores gets the same number.
      ::_exit(own.are_shared() && local_resources().cpus == own.count
                  && own_agent_facts().cores == own.count
                ? own.count
                : 99);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WEXITSTATUS(status), 1);
    EXPECT_TRUE(fs::remove(group, problem)) << problem.message();
    return;
  }
  GTEST_SKIP() << "no control group can be made here";
}

} // namespace
} // namespace troupe::internal
