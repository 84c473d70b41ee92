#pragma once

#include <deque>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/mentions.hpp"
#include "tests/support/played_ranks.hpp"
#include "tests/support/recorded_driver.hpp"

namespace troupe::internal::test {

/// A worker group between a driver that records and ranks that the test plays.
class worker_group_test : public testing::Test {
protected:
  using kind = rank_failure::kind_type;
  using ms = std::chrono::milliseconds;

  worker_group_test() {
    plan.run_name = "r";
    plan.run_path = "/runs/r";
    plan.world = {2, 2};
    plan.start_timeout = std::chrono::seconds{60};
    plan.stop_timeout = std::chrono::seconds{5};
    plan.exit_timeout = std::chrono::seconds{60};
    plan.host_grace = std::chrono::seconds{30};
    plan.loop = {{"module", 1, "id"}, {"module", 2, "id"}, "config"};
  }

  /// Spawns the group and has it start attempt 3 from report 10.
  void start() {
    ranks.attempt = 3;
    ranks.spawn_group(plan, [this] { return real; });
    driver = system.spawn(recorded_driver, record);
    send_anonymous(
      ranks.group,
      start_attempt{3, checkpoint::from_directory("/checkpoints/c"), 10},
      driver);
    system.settle();
  }

  /// Starts the group and brings every rank up.
  void start_all() {
    start();
    ranks.rise_all(plan.world.max);
  }

  void stop(std::int64_t grace_ms = 5000) {
    send_anonymous(ranks.group,
                   stop_attempt{ranks.attempt,
                                {ec::stopped, "the run was asked to stop"},
                                grace_ms});
    system.settle();
  }

  void pass_seconds(int n) {
    for (int i = 0; i < n; ++i)
      system.pass(ms{1000});
  }

  /// The driver has committed the oldest batch that waits, or refuses it.
  void answer_batch(error refusal = {}) {
    send_anonymous(caf::actor_cast<recorded_driver_actor>(driver),
                   answer_oldest{std::move(refusal)});
    system.settle();
  }

  /// The memory of the attempt under way.
  shared_segment& segment() {
    auto found = shared_segment::attach(ranks.launcher->launched[0].segment,
                                        {plan.run_id, ranks.attempt});
    EXPECT_TRUE(found);
    return segments.emplace_back(std::move(*found));
  }

  /// Where *rank* is now, as people call it.
  std::string place_of(int rank) {
    auto& group = state();
    return group.attempt->monitor
      .look_at(rank, group.attempt->meetings, group.self->clock().now())
      .place;
  }

  /// What *rank* shows there.
  rank_activity& activity(int rank) { return segment().activity(rank); }

  /// The time of the group, as ranks show it.
  rank_activity::clock::rep now() {
    return state().self->clock().now().time_since_epoch().count();
  }

  /// The loop of *rank* ends because a collective failed for *why*, which is
  /// the fault of others.
  void fail_by_others(int rank, std::string why) {
    activity(rank).fail_collective(collective_failure::others);
    ranks.end_loop(rank, {ec::rank_failed, std::move(why)});
    ranks.exit(rank);
  }

  /// *rank* uses 1 % of a core for 600 s.
  void work(int rank) {
    for (int i = 0; i < 600; ++i) {
      ranks.launcher->lives[rank].cpu += ms{10};
      pass_seconds(1);
    }
  }

  const rank_failure& failure_of(int rank) {
    static const rank_failure none;
    EXPECT_EQ(record->failed.size(), 1u);
    if (record->failed.empty() || !record->failed[0].ranks.contains(rank)) {
      ADD_FAILURE() << "rank " << rank << " has not failed";
      return none;
    }
    return record->failed[0].ranks.at(rank);
  }

  const worker_group_state& state() {
    return state_of(dynamic_cast<worker_group_state::pointer>(
      caf::actor_cast<caf::abstract_actor*>(ranks.group)));
  }

  const host_agent_state& agent_state() {
    return state_of(dynamic_cast<host_agent_state::pointer>(
      caf::actor_cast<caf::abstract_actor*>(ranks.agent)));
  }

  stepped_system system;
  /// The time that passes while the group stands still, too.
  std::chrono::steady_clock::time_point real{};
  group_plan plan;
  std::shared_ptr<driver_record> record = std::make_shared<driver_record>();
  driver_actor driver;
  played_ranks ranks{system};
  std::deque<shared_segment> segments;
};

} // namespace troupe::internal::test
