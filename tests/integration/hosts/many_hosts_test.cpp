// Runs whose ranks are on several hosts: the driver and the agents are
// processes of this program, on one machine or on hosts that are namespaces.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include <troupe/actors.hpp>

#include "tests/integration/hosts/many_hosts_fixture.hpp"
#include "tests/support/own_system.hpp"

namespace troupe::internal::test {

namespace {

using testing::HasSubstr;

/// What the loop does. Travels to the ranks.
struct host_plan {
  std::string folder; ///< Of the test.
  int steps = 4;
  int waits = 0; ///< Attempts in which the ranks wait at step 2 for a fault,
                 ///< and then for the pipe `go`.
  /// Attempts in which they report there until they are asked to leave.
  int talks = 0;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder, steps, waits, talks);
  }
};

void hosts_loop(train_context& context, const host_plan& plan) {
  auto attempt = static_cast<int>(context.attempt());
  hold_life(plan.folder, attempt, context.rank());
  auto sum = 0;
  if (auto& from = context.checkpoint())
    sum = std::stoi(bytes_of(from->path() / "sum.txt"));
  auto word = context.broadcast_from_rank_zero(
    context.rank() == 0 ? concat("from ", attempt) : std::string{});
  if (word != concat("from ", attempt))
    throw std::runtime_error{"broadcast: " + word};
  auto* variable = std::getenv("TROUPE_TEST_WORD");
  if (!variable || std::string{variable} != "word")
    throw std::runtime_error{"worker_env is not here"};
  auto spawner = ::getppid();
  tell(plan.folder,
       concat("rank ", attempt, ' ', context.rank(), ' ', context.node_rank(),
              ' ', context.local_rank(), ' ', context.local_world_size(), ' ',
              own_host(), ' ', ::getpid(), ' ', spawner, ' ',
              parent_of(spawner), ' ', sum));
  for (auto was_shown = false; sum < plan.steps && !context.stop_requested();) {
    if (sum == 2 && attempt < plan.waits) {
      tell(plan.folder, concat("waits ", attempt, ' ', context.rank()));
      unique_fd go{::open((plan.folder + "/go").c_str(), O_RDONLY | O_CLOEXEC)};
      if (!go)
        throw std::runtime_error{"no pipe"};
    }
    if (sum == 2 && attempt < plan.talks) {
      if (!std::exchange(was_shown, true))
        tell(plan.folder, concat("waits ", attempt, ' ', context.rank()));
      context.report({{"sum", sum}});
      if (!context.stop_requested())
        continue;
    }
    ++sum;
    context.barrier();
    if (context.rank() != 0) {
      context.report({{"sum", sum}});
      continue;
    }
    auto files = context.new_checkpoint();
    write_bytes(files.path() / "sum.txt", std::to_string(sum));
    context.report({{"sum", sum}}, std::move(files));
  }
}

} // namespace

/// The driver of a test in *folder*, which has *runs* runs.
int be_driver(const std::string& folder, int workers, int agents, int waits,
              int join_ms, int steps, int talks, int runs) {
  auto config = run_with_agents(folder);
  config.failure.max_failures = talks > 0 ? 0 : 2;
  config.preempt_signals = {SIGTERM, SIGXCPU}; // Not those by default.
  config.worker_env = {{"TROUPE_TEST_WORD", "word"}};
  config.quiet = !std::getenv("TROUPE_TEST_CONSOLE");
  scaling_config scaling;
  scaling.num_workers = workers;
  scaling.agents = agents;
  scaling.join_timeout = std::chrono::milliseconds{join_ms};
  if (auto* each = std::getenv("TROUPE_TEST_CPUS"))
    scaling.resources_per_worker.cpus = std::stod(each);
  if (auto* limit = std::getenv("TROUPE_TEST_LOST_AFTER_MS"))
    scaling.lost_after = std::chrono::milliseconds{std::stoi(limit)};
  for (int run = 1; run <= runs; ++run) {
    if (run > 1)
      config.name = concat("run", run);
    auto outcome =
      data_parallel_trainer{hosts_loop, host_plan{folder, steps, waits, talks},
                            train_options{.scaling = scaling, .run = config}}
        .fit();
    tell_result(folder, outcome);
  }
  return 0;
}

/// A service that keeps the handles of its *runs* runs.
int be_service(const std::string& folder, int runs) {
  own_system system;
  train_options options;
  options.scaling.num_workers = 2;
  options.run = run_with_agents(folder);
  options.run.worker_env = {{"TROUPE_TEST_WORD", "word"}};
  std::vector<run_handle> handles;
  for (int run = 1; run <= runs; ++run) {
    options.run.name = concat("run", run);
    auto started =
      data_parallel_trainer{hosts_loop, host_plan{folder}, options}.start(
        system);
    if (!started) {
      tell_result(folder, failed_result(started.error()));
      return 1;
    }
    handles.push_back(std::move(*started));
    tell_result(folder, handles.back().wait());
  }
  return 0;
}

namespace {

TEST_P(many_hosts_test, trains_over_three_hosts_with_one_storage) {
  auto driver = start_driver(5, 2, 0);
  auto first = start_agent(1);
  auto second = start_agent(2);
  auto ranks = introduced<seen_rank>(0, 5);
  std::map<int, std::set<std::string>> hosts;
  for (auto& [rank, x] : ranks) {
    EXPECT_EQ(x.node, rank / 2) << rank;
    EXPECT_EQ(x.local, rank % 2) << rank;
    EXPECT_EQ(x.local_ranks, rank == 4 ? 1 : 2) << rank;
    hosts[x.node].insert(concat(x.host, ' ', x.agent));
  }
  for (auto& [node, names] : hosts)
    EXPECT_EQ(names.size(), 1u) << "one agent for each host";
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(first->wait(), 0);
  EXPECT_EQ(second->wait(), 0);
  EXPECT_FALSE(fs::exists(folder_ / "ticket"));
  for (int rank = 1; rank < 5; ++rank)
    EXPECT_TRUE(
      fs::exists(folder_ / concat("storage/run/logs/rank_", rank, ".log")));
}

TEST_P(many_hosts_test, an_agent_reaches_its_driver_over_ipv6) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "hosts with addresses of their own are needed";
  for (auto host : {0, 1})
    if (start(host, {"/usr/bin/env", "ip", "address", "add",
                     concat("fd00::", host + 1, "/64"), "dev", "eth0", "nodad"})
          ->wait()
        != 0)
      GTEST_SKIP() << "the kernel has no IPv6";
  auto driver = start_driver(2, 1, 0);
  auto own = ticket_of_driver();
  std::erase_if(own.addresses,
                [](const auto& x) { return !x.starts_with("fd00::"); });
  EXPECT_EQ(own.addresses, std::vector<std::string>{"fd00::1"});
  auto agent = start_agent_with(1, own);
  EXPECT_EQ(introduced<seen_rank>(0, 2)[1].host, "h2");
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, resumes_after_a_rank_of_another_host_was_killed) {
  auto driver = start_driver(2, 1, 1);
  auto agent = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  kill(1, ranks[1].pid);
  auto next = introduced<seen_rank>(1, 2);
  EXPECT_EQ(next[1].agent, ranks[1].agent) << "the agent stays";
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, resumes_after_the_spawner_of_another_host_was_killed) {
  auto driver = start_driver(2, 1, 1);
  auto agent = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  kill(1, ranks[1].spawner);
  await_end(0, 1);
  auto next = introduced<seen_rank>(1, 2);
  EXPECT_EQ(next[1].agent, ranks[1].agent) << "the agent stays";
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, resumes_with_another_agent_after_one_was_killed) {
  auto driver = start_driver(2, 1, 1);
  auto agent = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  kill(1, ranks[1].agent);
  await_end(0, 1);
  agent->wait();
  agent = start_agent(1);
  auto next = introduced<seen_rank>(1, 2);
  EXPECT_EQ(next[1].node, 1);
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
  EXPECT_THAT(journal(), HasSubstr("is lost"));
  EXPECT_THAT(journal(), HasSubstr("host " + ranks[1].host));
}

TEST_P(many_hosts_test, a_host_that_a_signal_asks_to_leave_is_replaced) {
  auto [ranks, next] = replace_host("-TERM");
  EXPECT_EQ(next[0].from, 3) << "a last checkpoint was saved";
  EXPECT_EQ(next[0].spawner, ranks[0].spawner);
  EXPECT_THAT(journal(), HasSubstr("attempt_left"));
  EXPECT_THAT(journal(), HasSubstr("is about to leave: its agent got SIGTERM"));
}

TEST_P(many_hosts_test, an_agent_leaves_with_grace_for_each_signal_of_its_run) {
  replace_host("-XCPU");
  EXPECT_THAT(journal(), HasSubstr("is about to leave: its agent got SIGXCPU"));
}

TEST_P(many_hosts_test, an_agent_that_two_signals_ask_to_leave_does_so_now) {
  auto driver = start_driver(2, 1, 1);
  auto agent = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  kill(1, ranks[1].agent, "-TERM");
  kill(1, ranks[1].agent, "-INT");
  await_end(0, 1);
  EXPECT_EQ(agent->wait(), 75);
  agent = start_agent(1);
  introduced<seen_rank>(1, 2);
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, an_agent_ends_with_its_driver_and_takes_its_ranks) {
  lose_driver();
  // What was reported is still there, and the run resumes.
  auto driver = start_driver(2, 1, 0);
  auto agent = start_agent(1);
  EXPECT_EQ(result_line().substr(0, 16), "result finished ");
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, a_host_that_does_not_come_is_named) {
  auto driver = start_driver(3, 2, 0, 1500);
  auto agent = start_agent(1);
  auto line = result_line();
  EXPECT_THAT(line, HasSubstr("result errored"));
  EXPECT_THAT(line, HasSubstr("host 2: no agent has connected to "));
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 75);
}

// Kubernetes starts no pod again that ended with 0, and the run resumes.
TEST_P(many_hosts_test, an_agent_of_a_preempted_run_is_to_be_started_again) {
  auto driver = start_driver(2, 1, 0, 120'000, 4, 0, 1);
  auto agent = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  kill(0, ranks[0].agent, "-TERM"); // That of the driver's host is the driver.
  EXPECT_THAT(result_line(), HasSubstr("result preempted"));
  driver->wait();
  EXPECT_EQ(agent->wait(), 75);
}

INSTANTIATE_TEST_SUITE_P(hosts, many_hosts_test,
                         testing::Values(where::here, where::namespaces),
                         name_of);

} // namespace

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  if (argc > 8 && std::string{argv[1]} == "--driver")
    return troupe::internal::test::be_driver(
      argv[2], std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]),
      std::atoi(argv[6]), std::atoi(argv[7]), std::atoi(argv[8]),
      argc > 9 ? std::atoi(argv[9]) : 1);
  if (argc > 3 && std::string{argv[1]} == "--service")
    return troupe::internal::test::be_service(argv[2], std::atoi(argv[3]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
