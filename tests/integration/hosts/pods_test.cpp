// Drivers and agents as Kubernetes starts them, with tickets of a folder.

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>

#include <gmock/gmock.h>

#include "tests/integration/hosts/many_hosts_fixture.hpp"
#include "troupe/trainers/node_agent.hpp"

namespace troupe::internal::test {

namespace {

using testing::HasSubstr;

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

// The port is that of the run, not of its handle.
TEST_P(pods_test, serve_all_runs_of_a_service_that_keeps_their_handles) {
  EXPECT_EQ(start_pod({"--make-tickets", tickets()})->wait(), 0);
  auto agent = start_agent_pod();
  auto service = start_pod({"--service", folder_.path().string(), "2"});
  auto first = introduced<seen_rank>(0, 2);
  EXPECT_EQ(result_line(), "result finished 1 ");
  auto second = introduced<seen_rank>(0, 2);
  EXPECT_EQ(second[1].agent, first[1].agent);
  EXPECT_EQ(result_line(), "result finished 1 ");
  EXPECT_EQ(service->wait(), 0);
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

INSTANTIATE_TEST_SUITE_P(hosts, pods_test, testing::Values(where::here),
                         name_of);

} // namespace

} // namespace troupe::internal::test
