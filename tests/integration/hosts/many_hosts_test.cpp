// Runs whose ranks are on several hosts: the driver and the agents are
// processes of this program, on one machine or on hosts that are namespaces.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include <troupe/train.hpp>

#include "tests/integration/hosts/many_hosts_fixture.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/loaded_modules.hpp"
#include "troupe/runtime/process/usable_cores.hpp"
#include "troupe/trainers/node_agent.hpp"

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

/// The same in each call.
std::uint16_t free_port() {
  static const auto port = [] {
    unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof(address);
    ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }();
  return port;
}

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

namespace {

/// The program or library *original* with another build id than *id*.
std::string other_build(const temporary_folder& folder,
                        const std::string& original, const std::string& id) {
  auto bytes = bytes_of(original);
  std::string raw;
  for (std::size_t i = 0; i + 1 < id.size(); i += 2)
    raw += static_cast<char>(std::stoi(id.substr(i, 2), nullptr, 16));
  auto at = bytes.find(raw);
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos)
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  auto path = folder / fs::path{original}.filename().string();
  write_bytes(path, bytes);
  fs::permissions(path, fs::owner_all);
  return path.string();
}

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

/// As Kubernetes starts it: all processes alike, with tickets that were there
/// before.
class pods_test : public many_hosts_test {
protected:
  std::shared_ptr<program> start_pod(std::vector<std::string> arguments) {
    arguments.insert(
      arguments.begin(),
      {"/usr/bin/env", concat("TROUPE_DRIVER=localhost:", free_port()),
       "TROUPE_TICKET=" + tickets(), "TROUPE_AGENTS=1", own_program()});
    return start(0, std::move(arguments));
  }

  std::shared_ptr<program> start_agent_pod() {
    return start_pod({"--node-agent"});
  }

  std::shared_ptr<program> start_driver_pod(int waits, int runs = 1) {
    return start_pod({"--driver", folder_.path().string(), "2", "0",
                      std::to_string(waits), "120000", "4", "0",
                      std::to_string(runs)});
  }

  /// As Kubernetes does once the driver has succeeded: the agent looks for
  /// another run.
  void end_agent_pod(program& agent) {
    kill(0, agent.pid, "-TERM");
    EXPECT_EQ(agent.wait(), 75);
  }

  std::string tickets() { return (folder_ / "tickets").string(); }
};

TEST_P(pods_test, meet_with_the_tickets_of_a_folder) {
  EXPECT_EQ(start_pod({"--make-tickets", tickets()})->wait(), 0);
  EXPECT_EQ(start_pod({"--make-tickets"})->wait(), 78);
  EXPECT_EQ(start_pod({"--make-tickets", tickets()})->wait(), 78)
    << "there are some";
  auto agent = start_agent_pod();
  auto driver = start_driver_pod(0);
  EXPECT_EQ(introduced<seen_rank>(0, 2)[1].node, 1);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  end_agent_pod(*agent);
  EXPECT_TRUE(fs::exists(folder_ / "tickets/agent.ticket")) << "for the next";
}

// Kubernetes starts no pod again that ended with 0.
TEST_P(pods_test, serve_all_runs_of_a_program) {
  EXPECT_EQ(start_pod({"--make-tickets", tickets()})->wait(), 0);
  auto agent = start_agent_pod();
  auto driver = start_driver_pod(0, 2);
  auto first = introduced<seen_rank>(0, 2);
  EXPECT_EQ(result_line(), "result finished 1 ");
  auto second = introduced<seen_rank>(0, 2);
  EXPECT_EQ(second[1].node, 1);
  EXPECT_EQ(second[1].agent, first[1].agent);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  end_agent_pod(*agent);
}

// Else they would be started again forever where nothing else ends the Job.
TEST_P(pods_test, succeed_if_no_other_run_follows) {
  EXPECT_EQ(start_pod({"--make-tickets", tickets()})->wait(), 0);
  auto driver = start_driver_pod(0);
  agent_orders orders;
  orders.ticket = tickets();
  orders.next_run = std::chrono::milliseconds{1};
  testing::internal::CaptureStderr();
  auto end = run_node_agent(orders);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("host has joined the run as host 1\n"));
  EXPECT_EQ(end.code, agent_exit::done);
  EXPECT_FALSE(end.has_to_leave);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
}

TEST_P(pods_test, that_are_replaced_meet_with_the_same_tickets) {
  EXPECT_EQ(start_pod({"--make-tickets", tickets()})->wait(), 0);
  auto driver = start_driver_pod(2);
  auto agent = start_agent_pod();
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  kill(0, ranks[1].agent);
  await_end(0, 1);
  agent->wait();
  agent = start_agent_pod();
  auto next = introduced<seen_rank>(1, 2, "waits");
  EXPECT_EQ(next[1].node, 1);
  EXPECT_NE(next[1].agent, ranks[1].agent);
  EXPECT_EQ(next[0].agent, ranks[0].agent) << "the driver stays";

  kill(0, next[0].agent); // That of the driver's pod is the driver.
  await_end(1, 0);
  await_end(1, 1);
  EXPECT_EQ(agent->wait(), 75) << "for which its Job starts another one";
  driver->wait();
  agent = start_agent_pod(); // Before its driver.
  driver = start_driver_pod(2);
  EXPECT_EQ(introduced<seen_rank>(2, 2)[1].from, 2);
  EXPECT_EQ(result_line().substr(0, 16), "result finished ");
  EXPECT_EQ(driver->wait(), 0);
  end_agent_pod(*agent);
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

TEST_P(many_hosts_test, refuses_a_host_with_less_than_its_ranks_claim) {
  auto cores = own_cores().numbers;
  if (GetParam() != where::here || cores.size() < 2)
    GTEST_SKIP() << "an agent gets one of two cores";
  auto driver =
    start(0, {"/usr/bin/env", "TROUPE_TEST_CPUS=2", own_program(), "--driver",
              folder_.path().string(), "2", "1", "0", "120000", "4", "0"});
  auto small =
    start(0, {"/usr/bin/taskset", "--cpu-list", std::to_string(cores.front()),
              "/usr/bin/env", "TROUPE_TICKET=" + (folder_ / "ticket").string(),
              own_program(), "--node-agent"});
  EXPECT_EQ(small->wait(), 78);
  auto agent = start_agent(0);
  EXPECT_EQ(introduced<seen_rank>(0, 2)[1].agent, agent->pid);
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

// No failure is allowed.
TEST_P(many_hosts_test, a_host_that_a_signal_asks_to_leave_is_replaced) {
  auto driver = start_driver(2, 1, 0, 120'000, 4, 0, 1);
  auto agent = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  kill(1, ranks[1].agent, "-TERM");
  EXPECT_EQ(agent->wait(), 75);
  agent = start_agent(1);
  auto next = introduced<seen_rank>(1, 2);
  EXPECT_EQ(next[0].from, 3) << "a last checkpoint was saved";
  EXPECT_EQ(next[0].spawner, ranks[0].spawner);
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
  EXPECT_THAT(journal(), HasSubstr("attempt_left"));
  EXPECT_THAT(journal(), HasSubstr("is about to leave: its agent got SIGTERM"));
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

TEST_P(many_hosts_test, an_agent_of_another_build_is_refused) {
  auto driver = start_driver(2, 1, 0);
  auto self = fs::canonical("/proc/self/exe").string();
  EXPECT_EQ(
    start_agent(1, other_build(folder_, self, program_build_id()))->wait(), 78);
  // The run waits for the right one.
  auto agent = start_agent(1);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, an_agent_with_another_build_of_a_library_is_refused) {
  loaded_module library;
  visit_modules([&](const loaded_module& x) {
    auto is_it = x.path.find("/libcaf_core.so") != x.path.npos;
    if (is_it)
      library = x;
    return !is_it;
  });
  if (library.path.empty())
    GTEST_SKIP() << "CAF is a part of this program";
  auto driver = start_driver(2, 1, 0);
  temporary_folder libraries;
  other_build(libraries, library.path, library.build_id);
  auto other =
    start(1, {"/usr/bin/env", "LD_LIBRARY_PATH=" + libraries.path().string(),
              "TROUPE_TICKET=" + (folder_ / "ticket").string(), own_program(),
              "--node-agent"});
  EXPECT_EQ(other->wait(), 78);
  auto agent = start_agent(1);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(many_hosts_test, an_agent_of_a_host_without_the_storage_is_refused) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "one machine has one storage";
  auto driver = start_driver(2, 1, 0, 5000);
  auto storage = (folder_ / "storage").string();
  // Only this program sees the empty folder.
  auto agent = start(
    1, {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
        concat("mount -t tmpfs none '", storage,
               "' && exec env TROUPE_TICKET='", (folder_ / "ticket").string(),
               "' '", own_program(), "' --node-agent")});
  EXPECT_EQ(agent->wait(), 78);
  EXPECT_THAT(result_line(), HasSubstr("is not the driver's on this host"));
  EXPECT_EQ(driver->wait(), 0);
}

// It asks again until the driver ends, which cannot wait any longer.
TEST_P(many_hosts_test, an_agent_whose_storage_is_full_is_to_come_again) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "one machine has one storage";
  auto driver = start_driver(2, 1, 0, 20'000);
  ticket_of_driver();
  auto logs = (folder_ / "storage/run/logs").string();
  auto said = (folder_ / "said").string();
  // It has room for its root only.
  auto agent = start(
    1, {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
        concat("mount -t tmpfs -o nr_inodes=1 none '", logs,
               "' && exec env TROUPE_TICKET='", (folder_ / "ticket").string(),
               "' '", own_program(), "' --node-agent 2>'", said, "'")});
  EXPECT_THAT(result_line(), HasSubstr("No space left on device"));
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 75);
  EXPECT_THAT(bytes_of(said), HasSubstr("waits up to 120 s for a place: "));
}

TEST_P(many_hosts_test, a_rank_that_cannot_read_the_runs_folder_says_why) {
  if (GetParam() != where::namespaces)
    GTEST_SKIP() << "one machine has one storage";
  auto driver = start_driver(2, 1, 1);
  auto agent = start(1, {"/usr/bin/unshare", "--mount", "/usr/bin/env",
                         "TROUPE_TICKET=" + (folder_ / "ticket").string(),
                         own_program(), "--node-agent"});
  auto ranks = introduced<seen_rank>(0, 2, "waits");
  // From now on that host has another file there than the driver.
  write_bytes(folder_ / "other", std::string(16, '0'));
  auto hidden = start(1, {"/usr/bin/nsenter",
                          concat("--mount=/proc/", ranks[1].agent, "/ns/mnt"),
                          "/bin/mount", "--bind", (folder_ / "other").string(),
                          (folder_ / "storage/run/ranks").string()});
  ASSERT_EQ(hidden->wait(), 0);
  kill(1, ranks[1].pid);
  EXPECT_THAT(result_line(),
              HasSubstr("has another attempt on this host than the driver"));
  EXPECT_EQ(driver->wait(), 0);
  agent->wait();
}

INSTANTIATE_TEST_SUITE_P(hosts, pods_test, testing::Values(where::here),
                         name_of);

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
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
