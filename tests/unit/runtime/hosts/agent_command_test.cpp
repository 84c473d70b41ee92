// The command that starts an agent, and the variables that it has.

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "troupe/runtime/hosts/host_launcher.hpp"

namespace troupe::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

TEST(agent_command_test, runs_one_srun_per_host) {
  auto command = agent_command(launch_engine::slurm, "n1",
                               {"/my app/train", "--node-agent"});
  ASSERT_TRUE(command);
  EXPECT_THAT(*command,
              ElementsAre("srun", "--overlap", "-N1", "-n1", "-w", "n1",
                          "--cpu-bind=none", "--mem=0", "--export=ALL",
                          "--kill-on-bad-exit=0", "--input=all",
                          "/my app/train", "--node-agent"));
}

TEST(agent_command_test, names_the_component_that_has_the_host) {
  environment_map own{{"SLURM_JOB_ID", "6"},
                      {"SLURM_JOB_NODELIST", "n[1-3]"},
                      {"SLURM_HET_SIZE", "2"},
                      {"SLURM_JOB_ID_HET_GROUP_0", "6"},
                      {"SLURM_JOB_NODELIST_HET_GROUP_0", "n1"},
                      {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]"}};
  auto component_of = [&own](std::string_view host) {
    auto command =
      agent_command(launch_engine::slurm, host, {"/train"}, {}, own);
    EXPECT_TRUE(command);
    auto option = (*command)[command->size() - 2];
    return option.starts_with("--het-group=") ? option : std::string{"none"};
  };
  EXPECT_EQ(component_of("n1"), "--het-group=0");
  EXPECT_EQ(component_of("n3"), "--het-group=1");
  EXPECT_EQ(component_of("n4"), "none");
  own["SLURM_JOB_ID"] = "8"; // Submitted from that job.
  EXPECT_EQ(component_of("n3"), "none");
}

TEST(launcher_environment_test, hides_options_of_the_step_around_from_srun) {
  environment_map own{{"HOME", "/root"},
                      {"SLURM_CONF", "/etc/slurm.conf"},
                      {"SLURM_CPUS_ON_NODE", "32"},
                      {"SLURM_CPUS_PER_GPU", "8"},
                      {"SLURM_CPUS_PER_TASK", "8"},
                      {"SLURM_CPU_BIND", "quiet,mask_cpu:0x1"},
                      {"SLURM_CPU_BIND_LIST", "0x1"},
                      {"SLURM_DISTRIBUTION", "cyclic"},
                      {"SLURM_EXACT", "1"},
                      {"SLURM_EXCLUSIVE", ""},
                      {"SLURM_GPUS", "16"},
                      {"SLURM_GPUS_PER_NODE", "4"},
                      {"SLURM_GPUS_PER_SOCKET", "2"},
                      {"SLURM_GPUS_PER_TASK", "1"},
                      {"SLURM_GPU_BIND", "single:1"},
                      {"SLURM_GRES", "gpu:4"},
                      {"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "n[1-4]"},
                      {"SLURM_MEM_BIND", "quiet,map_mem:0"},
                      {"SLURM_NPROCS", "16"},
                      {"SLURM_NTASKS", "16"},
                      {"SLURM_NTASKS_PER_GPU", "1"},
                      {"SLURM_NTASKS_PER_NODE", "4"},
                      {"SLURM_TRES_BIND", "gres/gpu:single:1"},
                      {"SLURM_TRES_PER_TASK", "cpu=8,gres/gpu=1"},
                      {"SRUN_CPUS_PER_TASK", "8"},
                      {"TEXT", "a=b"}};
  auto variables = launcher_environment(launch_engine::slurm, "n2", own);
  EXPECT_THAT(variables,
              ElementsAre("HOME=/root", "SLURM_CONF=/etc/slurm.conf",
                          "SLURM_CPUS_ON_NODE=32", "SLURM_GPUS_PER_NODE=4",
                          "SLURM_GRES=gpu:4", "SLURM_JOB_ID=7",
                          "SLURM_JOB_NODELIST=n[1-4]", "TEXT=a=b"));
}

TEST(launcher_environment_test, has_no_ssh_ask_by_a_window) {
  environment_map own{{"DISPLAY", ":0"}, {"SLURM_NTASKS", "16"}};
  auto expected =
    ElementsAre("DISPLAY=:0", "SLURM_NTASKS=16", "SSH_ASKPASS_REQUIRE=never");
  EXPECT_THAT(launcher_environment(launch_engine::ssh, "n2", own), expected);
  own["SSH_ASKPASS_REQUIRE"] = "force";
  EXPECT_THAT(launcher_environment(launch_engine::ssh, "n2", own), expected);
}

TEST(launcher_environment_test, asks_for_gpus_by_node_where_the_job_did_not) {
  auto variables = [](environment_map own) {
    own.emplace("SLURM_GPUS_ON_NODE", "4");
    return launcher_environment(launch_engine::slurm, "n2", own);
  };
  auto asks = ElementsAre("SLURM_GPUS_ON_NODE=4", "SLURM_GPUS_PER_NODE=4");
  EXPECT_THAT(variables({{"SLURM_GPUS", "16"}}), asks);
  EXPECT_THAT(variables({{"SLURM_GPUS_PER_TASK", "h200:1"}}), asks);
  EXPECT_THAT(variables({{"SLURM_NTASKS_PER_GPU", "1"}}), asks);
  EXPECT_THAT(variables({{"SLURM_TRES_PER_TASK", "cpu=8,gres/gpu=1"}}), asks);
  EXPECT_THAT(variables({{"SLURM_TRES_PER_TASK", "cpu=8"}}),
              ElementsAre("SLURM_GPUS_ON_NODE=4"));
  EXPECT_THAT(
    variables({{"SLURM_GPUS", "16"}, {"SLURM_GPUS_PER_NODE", "h200:4"}}),
    ElementsAre("SLURM_GPUS_ON_NODE=4", "SLURM_GPUS_PER_NODE=h200:4"));
  EXPECT_THAT(
    launcher_environment(launch_engine::slurm, "n2", {{"SLURM_GPUS", "16"}}),
    IsEmpty());
}

TEST(launcher_environment_test, asks_for_the_gpus_of_the_tasks_of_a_node) {
  environment_map job{{"SLURM_GPUS_ON_NODE", "8"},
                      {"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "n[1-4]"},
                      {"SLURM_TASKS_PER_NODE", "4(x2),2,1"},
                      {"SLURMD_NODENAME", "n1"}};
  auto gpus_on = [&job](std::string_view host, environment_map own) {
    own.insert(job.begin(), job.end());
    for (std::string_view x :
         launcher_environment(launch_engine::slurm, host, own))
      if (x.starts_with("SLURM_GPUS_PER_NODE="))
        return std::string{x.substr(x.find('=') + 1)};
    return std::string{};
  };
  EXPECT_EQ(gpus_on("n2", {{"SLURM_GPUS_PER_TASK", "h200:2"}}), "8");
  EXPECT_EQ(gpus_on("n3", {{"SLURM_GPUS_PER_TASK", "h200:2"}}), "4");
  EXPECT_EQ(gpus_on("n4", {{"SLURM_TRES_PER_TASK", "gres/gpu=2"}}), "2");
  // Not by task: Slurm does not say which node has how many.
  EXPECT_EQ(gpus_on("n3", {{"SLURM_GPUS", "19"}}), "8");
  job["SLURM_GPUS_ON_NODE"] = "1"; // For up to four tasks.
  EXPECT_EQ(gpus_on("n3", {{"SLURM_NTASKS_PER_GPU", "4"}}), "1");
}

TEST(agent_command_test, quotes_for_the_remote_shell_of_ssh) {
  auto command = agent_command(launch_engine::ssh, "fd00::1",
                               {"/my app/train", "--node-agent"});
  ASSERT_TRUE(command);
  EXPECT_THAT(*command,
              ElementsAre("ssh", "-T", "-o", "ClearAllForwardings=yes", "-o",
                          "RemoteCommand=none", "-o", "BatchMode=yes", "-o",
                          "ConnectTimeout=15", "-o", "ServerAliveInterval=1",
                          "-o", "ServerAliveCountMax=3", "-o", "LogLevel=ERROR",
                          "fd00::1", "exec '/my app/train' '--node-agent'"));
}

TEST(agent_command_test, refuses_what_would_be_an_option_or_a_command) {
  for (auto host : {"", "-oProxyCommand=id", "a b", "a;b", "$(id)", "a\nb"})
    for (auto engine : {launch_engine::ssh, launch_engine::slurm}) {
      auto command = agent_command(engine, host, {"/train"});
      ASSERT_FALSE(command) << host;
      EXPECT_EQ(command.error().code, ec::invalid_argument);
    }
  EXPECT_FALSE(agent_command(launch_engine::ssh, "h1", {}));
  EXPECT_FALSE(agent_command(launch_engine::ssh, "h1", {"train"}));
  EXPECT_FALSE(
    agent_command(launch_engine::ssh, "h1", {"/train", std::string(1, '\0')}));
  EXPECT_FALSE(agent_command(launch_engine::mpi, "h1", {"/train"}));
}

} // namespace
} // namespace troupe::internal
