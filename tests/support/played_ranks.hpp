#pragma once

#include <map>

#include "tests/support/recorded_launcher.hpp"
#include "tests/support/stepped_system.hpp"
#include "troupe/actors/host_agent.hpp"
#include "troupe/actors/trainer.hpp"
#include "troupe/actors/worker_group.hpp"

namespace troupe::internal::test {

/// The ranks of a worker group, played by the test, with real trainers.
class played_ranks {
public:
  using report_answer = std::shared_ptr<answer<report_committed>>;

  explicit played_ranks(stepped_system& system) : system_(system) {}

  /// Spawns a worker group whose ranks, *plan* says how many, are all on one
  /// host.
  void spawn_group(const group_plan& plan,
                   std::function<std::chrono::steady_clock::time_point()> now =
                     std::chrono::steady_clock::now) {
    agent = system_.spawn(host_agent, host_agent_args{launcher});
    group = system_.spawn(
      worker_group,
      worker_group_args{.agent = agent, .plan = plan, .now = std::move(now)},
      host_roster{plan.world.max});
  }

  /// A rank's process has started, with pid 100 + rank.
  void launched(int rank) {
    launcher->start(rank, 100 + rank);
    system_.settle();
  }

  /// A rank's process has started and says hello.
  std::shared_ptr<answer<start_loop>> rise(int rank) {
    launched(rank);
    return say_hello(rank);
  }

  std::shared_ptr<answer<start_loop>> say_hello(int rank) {
    auto& control = controls[rank];
    control = std::make_shared<loop_control>();
    trainers[rank] =
      system_.spawn(trainer, trainer_args{attempt, rank, agent, control});
    return system_.ask<start_loop>(
      agent, rank_ready{attempt, rank, 100 + rank, "here"}, trainers[rank]);
  }

  void rise_all(int world_size) {
    for (int rank = 0; rank < world_size; ++rank)
      rise(rank);
  }

  report_answer report(int rank, std::uint64_t index, metrics values = {},
                       std::optional<checkpoint_part> part = std::nullopt) {
    return system_.ask<report_committed>(
      agent, troupe::internal::report{
               attempt, {rank, index, std::move(values), std::move(part)}});
  }

  /// The rank's loop returns, or fails with *reason*.
  std::shared_ptr<answer<void>> end_loop(int rank, error reason = {},
                                         bool stopped = false) {
    return system_.ask<void>(
      agent, loop_ended{attempt, rank, std::move(reason), stopped});
  }

  /// The rank's process has ended.
  void exit(int rank, process_exit cause = {}) {
    launcher->exit(rank, std::move(cause));
    system_.settle();
  }

  void kill(int rank, int signal) {
    exit(rank, {process_exit::kind::signaled, signal, {}});
  }

  /// The rank's loop returns and its process ends.
  void finish(int rank) {
    end_loop(rank);
    exit(rank);
  }

  /// The rank leaves because it was asked to.
  void obey(int rank) {
    end_loop(rank, controls.at(rank)->reason(), true);
    exit(rank);
  }

  bool asked_to_end(int rank) const { return controls.at(rank)->ended(); }

  std::uint64_t attempt = 0;
  worker_group_actor group;
  host_agent_actor agent;
  std::shared_ptr<recorded_launcher> launcher =
    std::make_shared<recorded_launcher>();
  std::map<int, std::shared_ptr<loop_control>> controls;
  std::map<int, trainer_actor> trainers;

private:
  stepped_system& system_;
};

} // namespace troupe::internal::test
