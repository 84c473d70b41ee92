// Elastic runs on several hosts: the driver and the agents are processes of
// this program, on one machine or on hosts that are namespaces.

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>

#include <troupe/train.hpp>

#include "tests/integration/hosts/hosts_fixture.hpp"

namespace troupe::internal::test {

namespace {

using testing::HasSubstr;

/// An epoch of samples. Travels to the ranks.
struct epoch_plan {
  std::string folder; ///< Of the test.
  int samples = 24;
  /// Attempts in which the ranks stop after two steps: for a fault, or, if
  /// `talks`, reporting until they are asked to leave.
  int stops = 0;
  bool talks = false;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder, samples, stops, talks);
  }
};

/// Each rank has every world-th sample of what is left, as with a sampler.
void epoch_loop(train_context& context, const epoch_plan& plan) {
  auto attempt = static_cast<int>(context.attempt());
  auto rank = context.rank();
  auto world = context.world_size();
  hold_life(plan.folder, attempt, rank);
  auto next = 0;
  if (auto& from = context.checkpoint())
    next = std::stoi(bytes_of(from->path() / "next.txt"));
  auto spawner = ::getppid();
  tell(plan.folder,
       concat("rank ", attempt, ' ', rank, ' ', world, ' ', context.node_rank(),
              ' ', own_host(), ' ', spawner, ' ', parent_of(spawner)));
  auto stop_at = next + 2 * world;
  for (auto was_shown = false;
       next < plan.samples && !context.stop_requested();) {
    auto stops = attempt < plan.stops && next >= stop_at;
    if (stops && !std::exchange(was_shown, true))
      tell(plan.folder, concat("stops ", attempt, ' ', rank));
    while (stops && !plan.talks)
      ::pause();
    metrics values;
    if (!stops && next + rank < plan.samples)
      values["sample"] = next + rank;
    next += stops ? 0 : world;
    if (rank != 0) {
      context.report(values);
      continue;
    }
    auto files = context.new_checkpoint();
    write_bytes(files.path() / "next.txt", std::to_string(next));
    context.report(values, std::move(files));
  }
}

} // namespace

/// From now on ranks of this process end before they have begun. Its spawner,
/// of which they are forked, is its first fork or, if it has several threads,
/// this program started again.
void lose_ranks() {
  static int forks = std::getenv("TROUPE_SPAWNER") != nullptr ? 1 : 0;
  ::pthread_atfork(nullptr, nullptr, [] {
    if (++forks == 2)
      ::_exit(7);
  });
}

/// The driver of a test in *folder*, of a run that may have no failure.
int be_driver(const std::string& folder, int min, int max, int agents,
              int stops, bool talks, int join_ms) {
  auto config = run_with_agents(folder);
  config.failure.max_failures = 0;
  config.failure.controller_failure_limit = 0;
  config.checkpoint.num_to_keep = 2;
  scaling_config scaling;
  scaling.num_workers = {min, max};
  scaling.agents = agents;
  scaling.join_timeout = std::chrono::milliseconds{join_ms};
  auto outcome =
    data_parallel_trainer{epoch_loop, epoch_plan{folder, 24, stops, talks},
                          train_options{.scaling = scaling, .run = config}}
      .fit();
  tell_result(folder, outcome);
  return 0;
}

namespace {

/// A rank as it introduced itself.
struct seen_rank {
  int world = -1;
  int node = -1;
  std::string host;
  pid_t spawner = -1;
  pid_t agent = -1;

  friend std::istream& operator>>(std::istream& in, seen_rank& x) {
    return in >> x.world >> x.node >> x.host >> x.spawner >> x.agent;
  }
};

class elastic_hosts_test : public hosts_test {
protected:
  std::shared_ptr<program> start_driver(int min, int max, int agents, int stops,
                                        bool talks, int join_ms) {
    return start(0, {own_program(), "--driver", folder_.path().string(),
                     std::to_string(min), std::to_string(max),
                     std::to_string(agents), std::to_string(stops),
                     std::to_string(talks), std::to_string(join_ms)});
  }

  /// Either of the agents may have come first.
  void signal_agent(const seen_rank& x, const char* signal) {
    auto host = GetParam() == where::here ? 0 : x.host.back() - '1';
    kill(host, x.agent, signal);
  }

  /// Expects each sample once in all reports.
  void expect_each_sample_once() {
    std::map<int, int> seen;
    for (auto& batch : batches())
      for (auto& values : batch.values)
        if (auto sample = values.find_number("sample"))
          ++seen[static_cast<int>(*sample)];
    EXPECT_EQ(seen.size(), 24u);
    for (auto& [sample, times] : seen)
      EXPECT_EQ(times, 1) << "sample " << sample;
  }
};

TEST_P(elastic_hosts_test, resumes_on_the_remaining_hosts) {
  auto driver = start_driver(2, 3, 2, 1, false, 120'000);
  auto first = start_agent(1);
  auto second = start_agent(2);
  auto ranks = introduced<seen_rank>(0, 3, "stops");
  EXPECT_EQ(ranks[2].world, 3);
  signal_agent(ranks[1], "-KILL");
  auto next = introduced<seen_rank>(1, 2);
  EXPECT_EQ(next[1].world, 2);
  EXPECT_EQ(next[1].node, 1);
  EXPECT_EQ(next[0].spawner, ranks[0].spawner) << "the driver's host stays";
  EXPECT_EQ(next[1].spawner, ranks[2].spawner) << "so does the other one";
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  first->wait();
  second->wait();
  expect_each_sample_once();
  EXPECT_THAT(journal(), HasSubstr("world_resized"));
}

TEST_P(elastic_hosts_test, starts_with_enough_hosts_and_grows_with_the_next) {
  auto driver = start_driver(2, 3, 2, 1, true, 1500);
  auto first = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "stops");
  EXPECT_EQ(ranks[0].world, 2);
  auto second = start_agent(2);
  auto next = introduced<seen_rank>(1, 3);
  EXPECT_EQ(next[2].world, 3);
  EXPECT_EQ(next[0].spawner, ranks[0].spawner);
  EXPECT_EQ(next[1].spawner, ranks[1].spawner);
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(first->wait(), 0);
  EXPECT_EQ(second->wait(), 0);
  expect_each_sample_once();
}

TEST_P(elastic_hosts_test, shrinks_for_a_host_that_is_about_to_leave) {
  auto driver = start_driver(2, 3, 2, 1, true, 120'000);
  auto first = start_agent(1);
  auto second = start_agent(2);
  auto ranks = introduced<seen_rank>(0, 3, "stops");
  signal_agent(ranks[1], "-TERM");
  auto next = introduced<seen_rank>(1, 2);
  EXPECT_EQ(next[1].spawner, ranks[2].spawner);
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  first->wait();
  second->wait();
  expect_each_sample_once();
}

TEST_P(elastic_hosts_test, does_without_a_host_that_cannot_start_ranks) {
  auto driver = start_driver(2, 3, 2, 1, true, 1500);
  auto first = start_agent(1);
  auto ranks = introduced<seen_rank>(0, 2, "stops");
  auto second =
    start(2, {"/usr/bin/env", "TROUPE_TICKET=" + (folder_ / "ticket").string(),
              "TROUPE_TEST_LOSES_RANKS=1", own_program(), "--node-agent"});
  auto next = introduced<seen_rank>(2, 2);
  EXPECT_EQ(next[1].world, 2);
  EXPECT_EQ(next[0].spawner, ranks[0].spawner);
  EXPECT_EQ(next[1].spawner, ranks[1].spawner);
  EXPECT_EQ(result_line(), "result finished 3 ");
  EXPECT_EQ(driver->wait(), 0);
  first->wait();
  second->wait();
  expect_each_sample_once();
  EXPECT_THAT(journal(), HasSubstr("ranks could not start on "));
}

INSTANTIATE_TEST_SUITE_P(hosts, elastic_hosts_test,
                         testing::Values(where::here, where::namespaces),
                         name_of);

} // namespace

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  if (std::getenv("TROUPE_TEST_LOSES_RANKS") != nullptr)
    troupe::internal::test::lose_ranks();
  troupe::init(argc, argv);
  if (argc > 8 && std::string{argv[1]} == "--driver")
    return troupe::internal::test::be_driver(
      argv[2], std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]),
      std::atoi(argv[6]), std::atoi(argv[7]) != 0, std::atoi(argv[8]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
