#include "tests/unit/runtime/hosts/launch_environment_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/hosts/slurm_job.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(launch_environment_test, is_this_host_alone_without_an_engine) {
  auto x = found({{"PATH", "/bin"}, {"SLURM_JOB_ID", ""}});
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_EQ(x.engine, launch_engine::none);
  EXPECT_EQ(x.host_index, 0u);
  EXPECT_TRUE(x.hosts.empty());
  EXPECT_THAT(x.found, HasSubstr("this host alone"));
}

TEST(launch_environment_test, drives_a_slurm_job_from_its_batch_script) {
  auto x = found(batch_script);
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_EQ(x.engine, launch_engine::slurm);
  EXPECT_THAT(x.hosts, ElementsAre(host_entry{"n1", 2}, host_entry{"n2", 2},
                                   host_entry{"n3", 2}, host_entry{"n4", 1}));
  EXPECT_EQ(x.host_index, 0u);
  EXPECT_EQ(x.found,
            "Slurm job 4711: 4 hosts (n1-n4), this is its batch script");
}

TEST(launch_environment_test, drives_a_slurm_job_from_salloc) {
  auto x = found(job, on("login"));
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_EQ(x.host_index, std::nullopt);
  EXPECT_EQ(x.found, "Slurm job 4711: 4 hosts (n1-n4), this is a command of "
                     "salloc, on a host that is not one of them");
  // A shell on a node may have the name of its own job's node.
  EXPECT_EQ(
    found(with(job, {{"SLURMD_NODENAME", "n9"}}), on("n3.example")).host_index,
    2u);
}

TEST(launch_environment_test, drives_a_slurm_job_from_its_interactive_step) {
  auto x = found(with(batch_script, {{"SLURM_STEP_ID", "4294967290"}}));
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_THAT(node_names(x), ElementsAre("n1", "n2", "n3", "n4"));
  EXPECT_EQ(x.found,
            "Slurm job 4711: 4 hosts (n1-n4), this is its interactive step");
}

TEST(launch_environment_test, drives_the_nodes_of_a_step_from_its_task_0) {
  auto x = found(task(0, "n2"));
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_THAT(node_names(x), ElementsAre("n2", "n3", "n4"));
  EXPECT_EQ(x.hosts.front().slots, 1);
  EXPECT_EQ(x.host_index, 0u);
  EXPECT_EQ(x.found, "Slurm job 4711: 3 hosts (n2-n4), this is task 0 of srun");
}

TEST(launch_environment_test, has_no_use_for_the_other_tasks_of_a_step) {
  auto x = found(task(2, "n4"));
  EXPECT_EQ(x.role, launch_role::extra_task);
  EXPECT_EQ(x.found, "Slurm job 4711: this is task 2 of srun, which ends: "
                     "number 0 starts the agents itself; if the cluster has a "
                     "WaitTime, it begins now: use srun --wait=0");
  // The same step with hosts of its own.
  EXPECT_EQ(found(task(2, "n4"), with_hosts("n2,n3", "n4")).role,
            launch_role::extra_task);
}

TEST(launch_environment_test, knows_the_agents_that_a_driver_starts) {
  auto x = found(task(0, "n3"), as_agent("n3"));
  EXPECT_EQ(x.role, launch_role::agent);
  EXPECT_EQ(x.host_index, 1u);
  EXPECT_EQ(x.found, "Slurm job 4711: this is an agent; this is n3");
  // Its launcher made a step for it alone.
  auto alone = found(with(task(0, "n3"), {{"SLURM_STEP_NODELIST", "n3"},
                                          {"SLURM_STEP_NUM_NODES", "1"},
                                          {"SLURM_STEP_NUM_TASKS", "1"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                          {"SLURM_NNODES", "1"},
                                          {"SLURM_TASKS_PER_NODE", "1"}}),
                     as_agent("n3"));
  EXPECT_EQ(alone.hosts.at(alone.host_index.value()).name, "n3");
  auto options = as_agent("b");
  options.hosts = "a,b"; // By the program's own configuration.
  EXPECT_EQ(found({}, options).role, launch_role::agent);
}

// As in the shell of `srun --pty bash`.
TEST(launch_environment_test, has_the_nodes_of_a_job_submitted_from_a_step) {
  environment_map step{{"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_STEP_NODELIST", "n1"},
                       {"SLURM_STEP_NUM_NODES", "1"},
                       {"SLURM_STEP_NUM_TASKS", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "1"},
                       {"SLURMD_NODENAME", "n1"}};
  auto submitted = with(job, step);
  auto script = with(submitted, {{"ENVIRONMENT", "BATCH"}});
  auto x = found(script);
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_EQ(x.host_index, 0u);
  EXPECT_THAT(x.hosts, ElementsAre(host_entry{"n1", 2}, host_entry{"n2", 2},
                                   host_entry{"n3", 2}, host_entry{"n4", 1}));
  EXPECT_EQ(x.found,
            "Slurm job 4711: 4 hosts (n1-n4), this is its batch script");
  EXPECT_EQ(found(submitted).found,
            "Slurm job 4711: 4 hosts (n1-n4), this is a command of salloc");
  // The node of the step is not one of the job, which has as many.
  environment_map other{{"SLURM_JOB_NODELIST", "n3"},
                        {"SLURM_NODELIST", "n3"},
                        {"SLURM_JOB_NUM_NODES", "1"},
                        {"SLURM_NNODES", "1"},
                        {"SLURM_TASKS_PER_NODE", "1"}};
  EXPECT_EQ(found(with(with(script, other), {{"SLURMD_NODENAME", "n3"}})).found,
            "Slurm job 4711: 1 host (n3), this is its batch script");
  EXPECT_EQ(found(with(submitted, other)).found,
            "Slurm job 4711: 1 host (n3), this is a command of salloc, on a "
            "host that is not one of them");
  EXPECT_THAT(found(with(with(script, other), {{"SLURM_STEP_ID", "4294967290"},
                                               {"SLURMD_NODENAME", "n3"}}))
                .found,
              HasSubstr("its batch script"));
}

TEST(launch_environment_test,
     has_one_driver_although_srun_preserves_variables) {
  environment_map preserved{{"SLURM_NNODES", "4"},
                            {"SLURM_TASKS_PER_NODE", "2(x3),1"}};
  EXPECT_EQ(found(with(task(0, "n2"), preserved)).role, launch_role::driver);
  EXPECT_EQ(found(with(task(1, "n3"), preserved)).role,
            launch_role::extra_task);
}

TEST(launch_environment_test, names_array_elements_and_restarts) {
  auto x = found(with(batch_script, {{"SLURM_ARRAY_JOB_ID", "4711"},
                                     {"SLURM_ARRAY_TASK_ID", "3"},
                                     {"SLURM_RESTART_COUNT", "2"}}));
  EXPECT_THAT(x.found, HasSubstr("Slurm job 4711_3 (restart 2): "));
}

TEST(launch_environment_test, sees_mpirun_inside_a_slurm_job) {
  // On the first node, mpirun's ranks have the variables of the batch script.
  auto rank = [](std::string number) {
    return with(batch_script, {{"OMPI_COMM_WORLD_RANK", number},
                               {"OMPI_COMM_WORLD_SIZE", "8"},
                               {"PMIX_RANK", number}});
  };
  EXPECT_EQ(found(rank("0")).role, launch_role::driver);
  EXPECT_THAT(found(rank("0")).found, HasSubstr("this is rank 0 of mpirun"));
  EXPECT_EQ(found(rank("1")).role, launch_role::extra_task);
  // On the others, also those of the step of mpirun's daemons.
  auto other = found(with(task(0, "n2"), {{"OMPI_COMM_WORLD_RANK", "4"},
                                          {"OMPI_COMM_WORLD_SIZE", "8"}}));
  EXPECT_EQ(other.role, launch_role::extra_task);
  EXPECT_THAT(node_names(other), ElementsAre("n1", "n2", "n3", "n4"));
  // That step has fewer nodes if mpirun runs on the first one.
  auto in_step = with(task(0, "n2"), {{"OMPI_COMM_WORLD_RANK", "1"},
                                      {"SLURM_STEP_NODELIST", "n[2-4]"},
                                      {"SLURM_STEP_NUM_NODES", "3"}});
  EXPECT_EQ(found(in_step).role, launch_role::extra_task);
}

TEST(launch_environment_test, refuses_variables_of_slurm_that_do_not_agree) {
  EXPECT_EQ(mistake_in(with(batch_script, {{"SLURM_JOB_NUM_NODES", "3"}})),
            "SLURM_JOB_NUM_NODES=3, but SLURM_JOB_NODELIST=n[1-4] names 4");
  EXPECT_EQ(mistake_in(with(batch_script, {{"SLURM_TASKS_PER_NODE", "1(x3)"}})),
            "SLURM_TASKS_PER_NODE=1(x3) is for 3 nodes, but "
            "SLURM_JOB_NODELIST names 4");
  EXPECT_THAT(mistake_in(with(batch_script, {{"SLURM_TASKS_PER_NODE", "8"}})),
              HasSubstr("is for 1 node,"));
  // What is not needed refuses nothing.
  EXPECT_TRUE(
    found(with(batch_script, {{"SLURM_JOB_CPUS_PER_NODE", "8"}})).host_index);
  EXPECT_THAT(mistake_in(with(batch_script, {{"SLURMD_NODENAME", "m"}})),
              HasSubstr("SLURMD_NODENAME=m is not one of the nodes"));
  EXPECT_THAT(
    mistake_in(with(job, {{"SLURM_JOB_NODELIST", ""}, {"SLURM_NODELIST", ""}})),
    HasSubstr("SLURM_JOB_NODELIST is not"));
  EXPECT_THAT(mistake_in(with(batch_script, {{"SLURM_JOB_NODELIST", "n[1-"}})),
              HasSubstr("at character 5"));
  EXPECT_THAT(mistake_in(with(task(0, "n2"), {{"SLURM_PROCID", ""}})),
              HasSubstr("SLURM_PROCID is not"));
  EXPECT_EQ(mistake_in(task(3, "n2")),
            "SLURM_PROCID=3 is not below SLURM_STEP_NUM_TASKS=3");
  EXPECT_EQ(mistake_in(with(task(0, "n2"), {{"SLURM_STEP_ID", "first"}})),
            "SLURM_STEP_ID=first is not a number from 0 to 4294967295");
  EXPECT_THAT(mistake_in(with(batch_script, {{"SLURM_ARRAY_TASK_ID", "3"}})),
              HasSubstr("only one is set"));
}

TEST(launch_environment_test, refuses_to_be_one_of_several_drivers) {
  environment_map torchrun{
    {"RANK", "2"}, {"LOCAL_RANK", "2"}, {"WORLD_SIZE", "4"}};
  constexpr auto why =
    "this is LOCAL_RANK=2 of a launcher such as torchrun, each of whose "
    "processes would start agents on all hosts: start one process instead, or "
    "unset LOCAL_RANK";
  EXPECT_EQ(mistake_in(with(task(0, "n2"), torchrun)), why);
  EXPECT_EQ(mistake_in(torchrun, with_hosts("a,b", "b")), why);
  EXPECT_EQ(found(with(task(1, "n3"), torchrun)).role, launch_role::extra_task);
  EXPECT_EQ(found(with(task(0, "n3"), torchrun), as_agent("n3")).role,
            launch_role::agent);
  // One process on each host.
  torchrun["LOCAL_RANK"] = "0";
  EXPECT_EQ(found(with(task(0, "n2"), torchrun)).role, launch_role::driver);
  // Of something else.
  EXPECT_EQ(found(with(task(0, "n2"), {{"LOCAL_RANK", "none"}})).role,
            launch_role::driver);
}

TEST(launch_environment_test, starts_given_hosts_over_ssh) {
  auto x = found({}, with_hosts("a,b,c", "b.example.org"));
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_EQ(x.engine, launch_engine::ssh);
  EXPECT_EQ(x.host_index, 1u);
  EXPECT_EQ(x.found, "3 hosts (a, b, c) over ssh, because hosts are given; "
                     "this is b");
  EXPECT_THAT(found({}, with_hosts("a,c", "b")).found,
              HasSubstr("this host is not one of them"));
  EXPECT_EQ(found({}, with_hosts("10.0.0.[1-2]", "b")).host_index, 0u);
  temporary_folder folder;
  write_bytes(folder / "hosts", "a slots=2\nlocalhost\n");
  auto file = found({}, with_hosts((folder / "hosts").string(), "b"));
  EXPECT_THAT(file.hosts,
              ElementsAre(host_entry{"a", 2}, host_entry{"localhost", {}}));
  EXPECT_EQ(file.host_index, 1u);
}

TEST(launch_environment_test, refuses_given_hosts_that_cannot_be_meant) {
  EXPECT_EQ(mistake_in({}, with_hosts("a,localhost,b", "b")),
            "the hosts localhost and b are both this host");
  EXPECT_THAT(mistake_in({}, with_hosts("a,a", "b")),
              HasSubstr("host a is named twice"));
  EXPECT_EQ(mistake_in(batch_script, with_hosts("n1,n7", "n1")),
            "host n7 is given, but Slurm job 4711 has n1-n4: give no hosts to "
            "use those of the job, or unset SLURM_JOB_ID");
  EXPECT_EQ(found(batch_script, with_hosts("n1,n2", "n1")).engine,
            launch_engine::ssh);
}

const environment_map heterogeneous{
  {"SLURM_HET_SIZE", "2"},
  {"SLURM_JOB_ID_HET_GROUP_0", "4711"},
  {"SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-4]"},
  {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[5-6]"}};

TEST(launch_environment_test, says_that_it_uses_a_part_of_a_heterogeneous_job) {
  EXPECT_EQ(found(with(batch_script, heterogeneous)).found,
            "Slurm job 4711: 4 hosts (n1-n4) of 1 of its 2 components, this is "
            "its batch script");
  // What `salloc` sets of such a job.
  auto x = found(with(heterogeneous, {{"SLURM_JOB_ID", "4711"}}));
  EXPECT_EQ(x.found, "Slurm job 4711: 4 hosts (n1-n4) of 1 of its 2 "
                     "components, this is a command of salloc, on a host that "
                     "is not one of them");
  // Submitted from a job of that kind.
  EXPECT_EQ(
    found(with(with(batch_script, heterogeneous), {{"SLURM_JOB_ID", "4712"}}))
      .found,
    "Slurm job 4712: 4 hosts (n1-n4), this is its batch script");
  EXPECT_EQ(mistake_in(with(with(batch_script, heterogeneous),
                            {{"SLURM_JOB_NODELIST_HET_GROUP_1", ""}})),
            "SLURM_HET_SIZE=2, but SLURM_JOB_NODELIST_HET_GROUP_1 is not set");
}

TEST(launch_environment_test, uses_all_components_that_a_step_has) {
  auto step = with(with(task(0, "n2"), heterogeneous),
                   {{"SLURM_JOB_NODELIST", "n[2-6]"},
                    {"SLURM_JOB_NUM_NODES", "5"},
                    {"SLURM_STEP_NODELIST", "n[2-6]"},
                    {"SLURM_STEP_NUM_NODES", "5"},
                    {"SLURM_NNODES", "5"},
                    {"SLURM_STEP_TASKS_PER_NODE", "1(x5)"},
                    {"SLURM_TASKS_PER_NODE", "1(x5)"}});
  auto x = found(step);
  EXPECT_THAT(node_names(x), ElementsAre("n2", "n3", "n4", "n5", "n6"));
  EXPECT_EQ(x.found, "Slurm job 4711: 5 hosts (n2-n6) of 2 of its 2 "
                     "components, this is task 0 of srun");
  // As `srun` calls them that has no job around it.
  for (std::string name : {"SLURM_JOB_ID_", "SLURM_JOB_NODELIST_"})
    for (auto i : {"0", "1"})
      if (auto moved = step.extract(name + "HET_GROUP_" + i)) {
        moved.key() = name + "PACK_GROUP_" + i;
        step.insert(std::move(moved));
      }
  EXPECT_EQ(found(step).found, x.found);
}

TEST(launch_environment_test, expands_the_counts_of_slurm) {
  auto counts = [](std::string_view text) {
    return expand_slurm_counts(text, "X").value_or(std::vector<int>{-1});
  };
  EXPECT_THAT(counts("4,1"), ElementsAre(4, 1));
  EXPECT_THAT(counts("1(x3)"), ElementsAre(1, 1, 1));
  EXPECT_THAT(counts("2(x2),1,3(x1)"), ElementsAre(2, 2, 1, 3));
  for (auto text :
       {"", "a", "1,", "1(", "1(x", "1(x)", "1(x0)", "1(x2", "1 2", "-1",
        "1(x2)3", "1(x999999999)", "99999999999", "1(x65536),1"})
    EXPECT_THAT(counts(text), ElementsAre(-1)) << text;
  EXPECT_EQ(expand_slurm_counts("4,x", "X").error().message,
            "X=4,x: at character 3: counts such as 4,1 or 1(x3) are expected, "
            "for at most 65536 nodes");
}

TEST(launch_environment_test, knows_the_variables_of_this_process) {
  ::setenv("TROUPE_TEST_VARIABLE", "a=b", 1);
  EXPECT_EQ(own_environment().at("TROUPE_TEST_VARIABLE"), "a=b");
  ::unsetenv("TROUPE_TEST_VARIABLE");
}

} // namespace
} // namespace troupe::internal::test
