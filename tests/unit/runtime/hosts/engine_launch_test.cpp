// Launches through the real sshd and the real Slurm on hosts that are
// namespaces of this machine.

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/environment_guard.hpp"
#include "tests/support/host_tools.hpp"
#include "tests/support/run_command.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/hosts/launched_agents.hpp"
#include "troupe/runtime/hosts/host_launcher.hpp"
#include "troupe/runtime/hosts/launch_environment.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

using test::launch_records;
using test::run_command;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

void write_script(const fs::path& path, const std::string& body) {
  test::write_bytes(path, "#!/bin/sh\n" + body);
  fs::permissions(path, fs::owner_all);
}

/// Two hosts, h1 and h2, with the engine of *script* on them.
class engine_launch_test : public testing::Test {
protected:
  /// Skips the test if the engine's *programs* are not installed. They may be
  /// missing in CI, too: their packages start services.
  void prepare(const std::vector<std::string>& programs) {
    if (::geteuid() != 0)
      GTEST_SKIP() << "only root may start daemons on such hosts";
    for (const auto& program : programs)
      if (::access(program.c_str(), X_OK) != 0)
        GTEST_SKIP() << program << " is not installed";
    TROUPE_NEEDS_HOSTS();
    tools_ = test::host_tools();
    ::setenv("TROUPE_HOSTS", (folder / "hosts").c_str(), 1);
    ::mkfifo((folder / "begun").c_str(), 0600);
    begun_.open((folder / "begun").string(), std::ios::in | std::ios::out);
    fs::create_directory(folder / "bin");
    path_before_ = std::getenv("PATH");
    write_script(folder / "agent", "read -r ticket\n"
                                   "echo \"$(hostname) $ticket $*\" >'"
                                     + (folder / "begun").string()
                                     + "'\nexec cat\n");
  }

  /// Runs one of the scripts; fails the test if that fails.
  std::string tool(const std::string& arguments) {
    auto result = run_command(tools_ + '/' + arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << ": " << result.output;
    return result.output;
  }

  /// From now on, *name* is a command that ends with *command* and its own
  /// arguments.
  void wrap(const std::string& name, const std::string& command) {
    write_script(folder / "bin" / name, command + " \"$@\"\n");
    ::setenv("PATH", ((folder / "bin").string() + ':' + path_before_).c_str(),
             1);
  }

  void TearDown() override {
    if (!path_before_.empty())
      ::setenv("PATH", path_before_.c_str(), 1);
    if (!down_.empty())
      tool(down_);
    ::unsetenv("TROUPE_HOSTS");
  }

  void launch(host_launcher& launcher, launch_engine engine,
              std::uint64_t launch, const std::string& host,
              const std::string& program) {
    auto command =
      agent_command(engine, host, {program, "--node-agent"}, {}, variables);
    ASSERT_TRUE(command);
    launcher.launch(launch, std::move(*command),
                    concat("ticket-", launch, '\n'),
                    launcher_environment(engine, host, own_environment()));
  }

  std::string read_line() {
    std::string result;
    std::getline(begun_, result);
    return result;
  }

  /// Launches an agent on both hosts, then ends them.
  void launch_on_both(launch_engine engine) {
    auto launcher = host_launcher::start(records.listener());
    ASSERT_TRUE(launcher);
    launch(*launcher, engine, 1, "h1", (folder / "agent").string());
    launch(*launcher, engine, 2, "h2", (folder / "agent").string());
    std::vector<std::string> lines{read_line(), read_line()};
    EXPECT_THAT(lines, UnorderedElementsAre("h1 ticket-1 --node-agent",
                                            "h2 ticket-2 --node-agent"));
    for (std::uint64_t i : {1, 2}) {
      launcher->end(i);
      EXPECT_EQ(records.end_of(i).how,
                (process_exit{process_exit::kind::exited, 0, {}}))
        << to_string(records.end_of(i));
    }
  }

  test::temporary_folder folder;
  environment_map variables; ///< Of the driver.
  launch_records records;
  std::string tools_;
  std::string down_; ///< Ends the hosts, if they were made.

private:
  std::string path_before_;
  std::fstream begun_;
};

class ssh_launch_test : public engine_launch_test {
protected:
  void SetUp() override {
    prepare({"/usr/sbin/sshd"});
    if (IsSkipped() || HasFatalFailure())
      return;
    down_ = "hosts.sh down";
    tool("hosts.sh up 2");
    tool("ssh.sh up");
    auto command = tool("ssh.sh command h1");
    command.erase(command.find_last_not_of('\n') + 1);
    wrap("ssh", "PATH=${PATH#*:}; exec " + command);
  }

  void TearDown() override {
    if (!down_.empty())
      tool("ssh.sh down");
    engine_launch_test::TearDown();
  }
};

TEST_F(ssh_launch_test, launches_agents_over_ssh) {
  launch_on_both(launch_engine::ssh);
}

TEST_F(ssh_launch_test, has_the_words_of_ssh_when_a_launch_fails) {
  tool("hosts.sh crash h2");
  auto launcher = host_launcher::start(records.listener());
  ASSERT_TRUE(launcher);
  launch(*launcher, launch_engine::ssh, 1, "h1", "/no/such program");
  launch(*launcher, launch_engine::ssh, 2, "h2", (folder / "agent").string());
  launch(*launcher, launch_engine::ssh, 3, "h3", (folder / "agent").string());
  EXPECT_THAT(to_string(records.end_of(1)), HasSubstr("/no/such program"));
  EXPECT_THAT(records.end_of(1).how.code, AnyOf(126, 127));
  EXPECT_THAT(
    to_string(records.end_of(2)),
    AnyOf(HasSubstr("Connection timed out"), HasSubstr("No route to host")));
  EXPECT_EQ(records.end_of(2).how.code, 255);
  EXPECT_THAT(to_string(records.end_of(3)),
              HasSubstr("Could not resolve hostname h3"));
}

TEST_F(ssh_launch_test, asks_for_nothing_on_the_way_over_another_host) {
  auto config = (folder / "config").string();
  auto asked = (folder / "asked").string();
  test::write_bytes(config, "Host h2\n"
                            "  ProxyJump h1\n"
                            "Host *\n"
                            "  IdentityFile "
                              + (folder / "hosts.ssh/user_key").string()
                              + "\n"
                                "  UserKnownHostsFile /dev/null\n"
                                "  GlobalKnownHostsFile /dev/null\n");
  write_script(folder / "askpass", "touch '" + asked + "'\necho no\n");
  test::environment_guard guard{
    {{"DISPLAY", ":0"}, {"SSH_ASKPASS", (folder / "askpass").string()}}};
  wrap("ssh",
       "PATH=${PATH#*:}; exec " + tools_ + "/hosts.sh run h1 ssh -F " + config);
  auto launcher = host_launcher::start(records.listener());
  ASSERT_TRUE(launcher);
  launch(*launcher, launch_engine::ssh, 1, "h2", (folder / "agent").string());
  auto end = records.end_of(1);
  EXPECT_THAT(to_string(end), HasSubstr("Host key verification failed"));
  EXPECT_FALSE(end.may_help());
  EXPECT_FALSE(fs::exists(asked));
}

class slurm_launch_test : public engine_launch_test {
protected:
  void SetUp() override {
    prepare({"/usr/bin/srun", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"});
    if (IsSkipped() || HasFatalFailure())
      return;
    down_ = "slurm.sh down";
    tool("slurm.sh up 2");
  }

  /// The command that writes `env -0` to *name*.
  std::string write(const std::string& name) {
    return "sh -c 'env -0 >" + (folder / name).string() + "'";
  }

  /// What it wrote.
  environment_map variables_in(const std::string& name) {
    environment_map result;
    std::istringstream text{test::bytes_of(folder / name)};
    for (std::string entry; std::getline(text, entry, '\0');)
      if (auto equals = entry.find('='); equals != entry.npos)
        result[entry.substr(0, equals)] = entry.substr(equals + 1);
    EXPECT_FALSE(result.empty());
    return result;
  }

  /// What a program finds with these.
  launch_environment found_in(const std::string& name) {
    auto result =
      find_launch_environment(variables_in(name), {.own_names = {"h1"}});
    EXPECT_TRUE(result) << result.error().message;
    return result.value_or(launch_environment{});
  }
};

TEST_F(slurm_launch_test, launches_agents_in_steps_of_their_own) {
  tool("slurm.sh run salloc -N2 --no-shell");
  wrap("srun", "export SLURM_JOB_ID=1; PATH=${PATH#*:}; exec " + tools_
                 + "/slurm.sh run srun");
  launch_on_both(launch_engine::slurm);
  auto launcher = host_launcher::start(records.listener());
  ASSERT_TRUE(launcher);
  launch(*launcher, launch_engine::slurm, 3, "h1", "/no/such program");
  launch(*launcher, launch_engine::slurm, 4, "h9", (folder / "agent").string());
  EXPECT_THAT(to_string(records.end_of(3)),
              HasSubstr("/no/such program: No such file"));
  EXPECT_THAT(to_string(records.end_of(4)), HasSubstr("srun: error"));
}

TEST_F(slurm_launch_test, launches_agents_in_each_component_of_a_job) {
  tool("slurm.sh run srun -N1 " + write("task-$SLURM_PROCID") + " : -N1 "
       + write("task-$SLURM_PROCID"));
  EXPECT_THAT(found_in("task-0").found,
              HasSubstr(": 2 hosts (h1, h2) of 2 of its 2 components, this is "
                        "task 0 of srun"));
  EXPECT_EQ(found_in("task-1").role, launch_role::extra_task);
  tool("slurm.sh run sbatch --wait -o /dev/null -N1 : -N1 --wrap \""
       + write("batch") + '"');
  EXPECT_THAT(found_in("batch").found,
              HasSubstr(": 1 host (h1) of 1 of its 2 components, this is its "
                        "batch script"));
  tool("slurm.sh run salloc -N1 --no-shell : -N1 --no-shell");
  variables = {{"SLURM_HET_SIZE", "2"},
               {"SLURM_JOB_ID", "5"},
               {"SLURM_JOB_ID_HET_GROUP_0", "5"},
               {"SLURM_JOB_NODELIST_HET_GROUP_0", "h1"},
               {"SLURM_JOB_NODELIST_HET_GROUP_1", "h2"}};
  wrap("srun", "export SLURM_JOB_ID=5; PATH=${PATH#*:}; exec " + tools_
                 + "/slurm.sh run srun");
  launch_on_both(launch_engine::slurm);
}

TEST_F(slurm_launch_test, finds_out_where_slurm_runs_a_program) {
  tool("slurm.sh run srun -N2 -n3 " + write("task-$SLURM_PROCID"));
  tool("slurm.sh run salloc -N2 " + write("salloc"));
  tool("slurm.sh run sbatch --wait -o /dev/null -N2 --wrap \"" + write("batch")
       + '"');
  tool("slurm.sh run sbatch --wait -o /dev/null -N1 --array=2-3 --wrap \""
       + write("element-\\$SLURM_ARRAY_TASK_ID") + '"');
  tool("slurm.sh run srun -N1 sbatch --wait -o /dev/null -N2 --wrap \""
       + write("submitted") + '"');
  tool("slurm.sh run srun -N1 salloc -N2 " + write("allocated"));
  EXPECT_EQ(found_in("task-0").role, launch_role::driver);
  EXPECT_EQ(found_in("task-0").host_index, 0u);
  EXPECT_THAT(found_in("task-0").hosts,
              ElementsAre(host_entry{"h1", 2}, host_entry{"h2", 1}));
  for (auto task : {"task-1", "task-2"})
    EXPECT_EQ(found_in(task).role, launch_role::extra_task);
  EXPECT_EQ(found_in("salloc").found,
            "Slurm job 2: 2 hosts (h1, h2), this is a command of salloc");
  EXPECT_EQ(found_in("batch").found,
            "Slurm job 3: 2 hosts (h1, h2), this is its batch script");
  EXPECT_THAT(found_in("element-3").found, HasSubstr("Slurm job 4_3: "));
  EXPECT_EQ(found_in("element-3").role, launch_role::driver);
  EXPECT_THAT(found_in("submitted").found,
              HasSubstr(": 2 hosts (h1, h2), this is its batch script"));
  EXPECT_THAT(found_in("allocated").found,
              HasSubstr(": 2 hosts (h1, h2), this is a command of salloc"));
}

} // namespace
} // namespace troupe::internal
