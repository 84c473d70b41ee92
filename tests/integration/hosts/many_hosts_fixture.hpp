#pragma once

#include <fcntl.h>

#include <istream>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "tests/integration/hosts/hosts_fixture.hpp"
#include "troupe/actors/door/ticket.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal::test {

/// A rank as it introduced itself.
struct seen_rank {
  int node = -1;
  int local = -1;
  int local_ranks = -1;
  std::string host;
  pid_t pid = -1;
  pid_t spawner = -1;
  pid_t agent = -1;
  int from = -1; ///< The step it resumes from.

  friend std::istream& operator>>(std::istream& in, seen_rank& x) {
    return in >> x.node >> x.local >> x.local_ranks >> x.host >> x.pid
           >> x.spawner >> x.agent >> x.from;
  }
};

class many_hosts_test : public hosts_test {
protected:
  std::shared_ptr<program> start_driver(int workers, int agents, int waits,
                                        int join_ms = 120'000, int steps = 4,
                                        int host = 0, int talks = 0) {
    return start(host, {own_program(), "--driver", folder_.path().string(),
                        std::to_string(workers), std::to_string(agents),
                        std::to_string(waits), std::to_string(join_ms),
                        std::to_string(steps), std::to_string(talks)});
  }

  /// The ticket that the driver writes.
  ticket ticket_of_driver() {
    expected<ticket> found;
    while (!(found = read_ticket_file(folder_ / "ticket")))
      std::this_thread::yield();
    return std::move(*found);
  }

  /// Starts an agent with another ticket than the driver's.
  std::shared_ptr<program> start_agent_with(int host, const ticket& x) {
    auto path = (folder_ / "ticket_of_test").string();
    EXPECT_TRUE(replace_file(path, encode(x).view()));
    return start(host, {"/usr/bin/env", "TROUPE_TICKET=" + path, own_program(),
                        "--node-agent"});
  }

  /// What the ranks said before and after a host was replaced.
  struct replaced_host {
    std::map<int, seen_rank> before;
    std::map<int, seen_rank> after;
  };

  /// In a run that allows no failure, *signal* asks the agent of the other host
  /// to leave, and another one takes its place.
  replaced_host replace_host(const char* signal) {
    auto driver = start_driver(2, 1, 0, 120'000, 4, 0, 1);
    auto agent = start_agent(1);
    replaced_host seen;
    seen.before = introduced<seen_rank>(0, 2, "waits");
    kill(1, seen.before[1].agent, signal);
    EXPECT_EQ(agent->wait(), 75);
    agent = start_agent(1);
    seen.after = introduced<seen_rank>(1, 2);
    EXPECT_EQ(result_line(), "result finished 2 ");
    EXPECT_EQ(driver->wait(), 0);
    EXPECT_EQ(agent->wait(), 0);
    return seen;
  }

  /// Kills a driver whose ranks wait, one of them on another host.
  void lose_driver() {
    auto driver = start_driver(2, 1, 1);
    auto agent = start_agent(1);
    auto ranks = introduced<seen_rank>(0, 2, "waits");
    kill(0, ranks[0].agent); // That of the driver's host is the driver.
    await_end(0, 0);
    await_end(0, 1);
    EXPECT_EQ(agent->wait(), 75);
    driver->wait();
  }

  /// Ranks that wait continue.
  void go() {
    go_ = unique_fd{::open((folder_ / "go").c_str(), O_WRONLY | O_CLOEXEC)};
    ASSERT_TRUE(go_);
  }

  unique_fd go_;
};

} // namespace troupe::internal::test
