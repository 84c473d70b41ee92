// Agents that come by themselves: by a ticket, as pods or jobs, or by mpirun.

#include "tests/unit/runtime/hosts/launch_environment_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(launch_environment_test, meets_by_ticket_in_the_pods_of_an_indexed_job) {
  auto pod = [](std::string index) {
    return environment_map{{"TROUPE_DRIVER", "fashion-0.fashion:4444"},
                           {"JOB_COMPLETION_INDEX", std::move(index)}};
  };
  auto driver = found(pod("0"), on("fashion-0"));
  EXPECT_EQ(driver.role, launch_role::driver);
  EXPECT_EQ(driver.engine, launch_engine::tickets);
  EXPECT_EQ(driver.host_index, 0u);
  auto agent = found(pod("3"), on("fashion-3"));
  EXPECT_EQ(agent.role, launch_role::agent);
  EXPECT_EQ(agent.host_index, 3u);
  EXPECT_EQ(agent.ticket_path, "/run/troupe");
  EXPECT_TRUE(agent.has_lasting_ticket);
  EXPECT_EQ(agent.found,
            "TROUPE_DRIVER=fashion-0.fashion:4444: pod 3 of an Indexed Job is "
            "an agent, with the ticket in /run/troupe; this host is called "
            "fashion-3");
  // With `setHostnameAsFQDN`.
  EXPECT_EQ(
    found(pod("0"), on("fashion-0.fashion.team.svc.cluster.local")).role,
    launch_role::driver);
  // The driver of a JobSet is a pod of its own.
  EXPECT_EQ(found({{"TROUPE_DRIVER", "set-driver-0-0.set:4444"},
                   {"JOB_COMPLETION_INDEX", "0"}},
                  on("set-agents-0-0"))
              .role,
            launch_role::agent);
}

TEST(launch_environment_test, does_not_bind_the_pods_of_other_indexed_jobs) {
  auto x = found({{"JOB_COMPLETION_INDEX", "3"}});
  EXPECT_EQ(x.role, launch_role::driver);
  EXPECT_EQ(x.engine, launch_engine::none);
  EXPECT_THAT(x.found, HasSubstr("TROUPE_DRIVER is not set"));
  EXPECT_TRUE(x.is_odd);
  EXPECT_FALSE(found({}).is_odd);
}

TEST(launch_environment_test, names_a_launcher_whose_hosts_it_does_not_use) {
  auto odd = [](const environment_map& variables) {
    auto x = found(variables);
    EXPECT_EQ(x.role, launch_role::driver);
    EXPECT_EQ(x.engine, launch_engine::none);
    return x.is_odd ? x.found : "";
  };
  environment_map torchrun{
    {"WORLD_SIZE", "8"}, {"RANK", "4"}, {"LOCAL_RANK", "0"}};
  EXPECT_THAT(odd(torchrun), HasSubstr("WORLD_SIZE=8 is of a launcher"));
  EXPECT_EQ(odd(with(torchrun, {{"LOCAL_RANK", "1"}})), "") << "once on a host";
  EXPECT_EQ(odd(with(torchrun, {{"WORLD_SIZE", "1"}})), "");
  EXPECT_EQ(odd(with(torchrun, {{"WORLD_SIZE", "large"}})), "");
  temporary_folder folder;
  auto nodes = folder / "nodes";
  write_bytes(nodes, "n1\nn1\n");
  EXPECT_EQ(odd({{"PBS_NODEFILE", nodes.string()}}), "");
  write_bytes(nodes, "n1\nn1\nn2\nn2\n");
  EXPECT_THAT(odd({{"PBS_NODEFILE", nodes.string()}}),
              HasSubstr("PBS_NODEFILE has 2 hosts: give them by --hosts"));
  EXPECT_EQ(odd({{"PBS_NODEFILE", "/no/such/file"}}), "");
  EXPECT_EQ(odd({{"LSB_MCPU_HOSTS", "n1 4"}}), "");
  EXPECT_THAT(odd({{"LSB_MCPU_HOSTS", "n1 4 n2 4"}}),
              HasSubstr("LSB_MCPU_HOSTS has 2 hosts: give them by --hosts"));
}

TEST(launch_environment_test, meets_by_ticket_where_agents_are_jobs) {
  auto x = found(with(batch_script, {{"TROUPE_DRIVER", "[fd00::1]:4444"},
                                     {"TROUPE_TICKET", "/home/me/ticket"},
                                     {"SLURM_RESTART_COUNT", "1"}}),
                 as_agent("n1"));
  EXPECT_EQ(x.role, launch_role::agent);
  EXPECT_EQ(x.engine, launch_engine::tickets);
  EXPECT_EQ(x.found, "TROUPE_DRIVER=[fd00::1]:4444: Slurm job 4711 (restart 1) "
                     "is an agent, with the ticket in /home/me/ticket; this "
                     "host is called n1");
  // One agent serves a host.
  EXPECT_EQ(found(with(task(1, "n2"),
                       {{"TROUPE_DRIVER", "a:1"}, {"SLURM_LOCALID", "1"}}))
              .role,
            launch_role::extra_task);
  // The user says so, even on the driver's host.
  EXPECT_EQ(
    found({{"TROUPE_DRIVER", "localhost:1"}}, as_agent("localhost")).role,
    launch_role::agent);
}

TEST(launch_environment_test, an_agent_by_hand_needs_a_ticket_alone) {
  auto x = found({{"TROUPE_TICKET", "/home/me/ticket"}}, as_agent("a"));
  EXPECT_EQ(x.role, launch_role::agent);
  EXPECT_EQ(x.engine, launch_engine::tickets);
  EXPECT_EQ(x.ticket_path, "/home/me/ticket");
  EXPECT_FALSE(x.has_lasting_ticket) << "each start of a run makes its own";
}

TEST(launch_environment_test, several_tasks_of_a_host_are_one_agent) {
  auto agent = [](int number, std::string local) {
    return found(
      with(task(number, "n2"), {{"TROUPE_TICKET", "/home/me/ticket"},
                                {"SLURM_LOCALID", std::move(local)}}),
      as_agent("n2"));
  };
  EXPECT_EQ(agent(1, "0").role, launch_role::agent);
  EXPECT_EQ(agent(2, "1").role, launch_role::extra_task);
  // Slurm would kill the agent with its step.
  EXPECT_EQ(agent(2, "1").found,
            "an agent, with the ticket /home/me/ticket: this is process 1 of "
            "its host, which has an agent already; it ends; if the cluster has "
            "a WaitTime, it begins now: use srun --wait=0");
}

TEST(launch_environment_test, refuses_half_an_invitation) {
  EXPECT_THAT(mistake_in({{"TROUPE_TICKET", "/run/troupe"}}),
              HasSubstr("started without --node-agent"));
  EXPECT_THAT(mistake_in({{"TROUPE_DRIVER", "a:1"}}, with_hosts("a,b", "a")),
              HasSubstr("use one of them"));
  EXPECT_THAT(mistake_in({{"TROUPE_DRIVER", "a:1"}, {"TROUPE_AGENTS", "0"}}),
              HasSubstr("TROUPE_AGENTS=0"));
  for (auto address : {"a", "a:", "a:-1", "a:1x", ":1", "fd00::1:1", "[a]:1",
                       "[fd00::1]", "a b:1"})
    EXPECT_THAT(mistake_in({{"TROUPE_DRIVER", address}}),
                HasSubstr("is not HOST:PORT"))
      << address;
  for (auto address : {"a:0", "a:65536", "a:99999999999999999999"})
    EXPECT_THAT(mistake_in({{"TROUPE_DRIVER", address}}),
                HasSubstr("the port is out of range, 1 to 65535"))
      << address;
}

TEST(launch_environment_test, divides_the_ranks_of_mpirun) {
  auto rank = [](std::string number, std::string local) {
    return environment_map{{"OMPI_COMM_WORLD_RANK", number},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", std::move(local)},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", number},
                           {"PMIX_NAMESPACE", "prterun-1"}};
  };
  auto driver = found(rank("0", "0"));
  EXPECT_EQ(driver.role, launch_role::driver);
  EXPECT_EQ(driver.engine, launch_engine::mpi);
  EXPECT_EQ(found(rank("2", "0")).role, launch_role::agent);
  EXPECT_EQ(found(rank("2", "0")).found,
            "mpirun: this is rank 2 of 4, an agent of rank 0");
  EXPECT_EQ(found(rank("3", "1")).role, launch_role::extra_task);
  auto alone =
    found(with(rank("0", "0"), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  EXPECT_EQ(alone.engine, launch_engine::none);
  auto beside =
    found(with(rank("1", "1"), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  EXPECT_EQ(beside.engine, launch_engine::none);
  EXPECT_EQ(beside.role, launch_role::extra_task);
  EXPECT_EQ(found({{"PMIX_RANK", "1"}}).role, launch_role::agent);
  EXPECT_THAT(mistake_in(with(rank("0", "0"), {{"PMIX_RANK", "1"}})),
              HasSubstr("two different programs"));
  EXPECT_THAT(mistake_in(rank("4", "0")), HasSubstr("is not below"));
}

TEST(launch_environment_test, refuses_to_train_once_in_each_rank_of_mpich) {
  environment_map rank{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}};
  EXPECT_EQ(mistake_in(rank),
            "this is rank 1 of 4 of an mpiexec without PMIx (PMI_RANK is set, "
            "PMIX_RANK is not), such as that of MPICH or Intel MPI, and each "
            "would train alone: use Open MPI's mpirun, srun, or one process "
            "with --hosts; or unset PMI_RANK to train on this host alone");
  EXPECT_EQ(found(with(rank, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})).engine,
            launch_engine::none);
  EXPECT_EQ(found(with(rank, {{"PMIX_RANK", "1"}})).role, launch_role::agent);
  EXPECT_EQ(found(rank, as_agent("x")).role, launch_role::agent);
  // With hosts, the first of them is enough.
  EXPECT_EQ(found(with(rank, {{"PMI_RANK", "0"}}), with_hosts("a,b", "a")).role,
            launch_role::driver);
  auto other = found(rank, with_hosts("a,b", "b"));
  EXPECT_EQ(other.role, launch_role::extra_task);
  EXPECT_EQ(other.found, "hosts are given: this is rank 1 of mpiexec, which "
                         "ends: number 0 starts the agents itself");
}

TEST(launch_environment_test, tells_pmi_of_srun_from_mpiexec_inside_a_job) {
  // srun --mpi=pmi2
  auto rank = [](const environment_map& base, std::string number,
                 std::string size) {
    return with(
      base, {{"PMI_RANK", std::move(number)}, {"PMI_SIZE", std::move(size)}});
  };
  auto first = found(rank(task(0, "n2"), "0", "3"));
  EXPECT_EQ(first.role, launch_role::driver);
  EXPECT_THAT(node_names(first), ElementsAre("n2", "n3", "n4"));
  EXPECT_THAT(first.found, HasSubstr("this is task 0 of srun"));
  EXPECT_EQ(found(rank(task(2, "n4"), "2", "3")).role, launch_role::extra_task);
  // mpiexec starts two processes on each node, by one of its own.
  EXPECT_THAT(found(rank(batch_script, "0", "8")).found,
              HasSubstr("this is rank 0 of mpiexec"));
  EXPECT_EQ(found(rank(batch_script, "1", "8")).role, launch_role::extra_task);
  auto other = found(rank(task(0, "n2"), "2", "8"));
  EXPECT_EQ(other.role, launch_role::extra_task);
  EXPECT_THAT(node_names(other), ElementsAre("n1", "n2", "n3", "n4"));
  // A step inside a task of srun --mpi=pmi2, with and without PMIx.
  auto inner = found(rank(task(1, "n3"), "0", "2"));
  EXPECT_EQ(inner.role, launch_role::extra_task);
  EXPECT_THAT(inner.found, HasSubstr("this is task 1 of srun"));
  auto pmix = with(task(1, "n3"), {{"PMIX_RANK", "1"}});
  EXPECT_EQ(found(rank(pmix, "0", "8")).found, found(pmix).found);
}

} // namespace
} // namespace troupe::internal::test
