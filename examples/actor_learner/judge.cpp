#include "judge.hpp"

#include <chrono>
#include <cstdio>

#include "policy.hpp"

namespace {

/// Few episodes tell most policies. One that reaches the goal in these plays
/// many, which decide.
constexpr int few = 20, many = 100;

/// Plays by the checkpoint *files*; what to tell the run.
troupe::callback_done look_at(judge_state& state,
                              const troupe::checkpoint& files,
                              const policy& player) {
  auto episodes = few;
  auto reward = mean_reward(player, episodes, state.version);
  if (reward >= state.goal) {
    episodes = many;
    reward = mean_reward(player, episodes, 1'000'000 + state.version);
  }
  std::printf("checkpoint %llu: mean reward %.1f of %d episodes\n",
              static_cast<unsigned long long>(state.version), reward, episodes);
  if (reward < state.goal)
    return {};
  auto copied = files.to_directory(state.folder / "policy");
  if (!copied)
    return {.failures = {copied.error()}};
  state.is_done = true;
  char reason[80];
  std::snprintf(reason, sizeof reason, "mean reward %.1f of %d episodes",
                reward, episodes);
  troupe::fs::ofstream{state.folder / "verdict.txt"} << reason << '\n';
  return {.orders = {{troupe::finish_run{reason}}}};
}

} // namespace

troupe::user_callback_actor::behavior_type
judge(troupe::user_callback_actor::stateful_pointer<judge_state> self,
      double goal, exchange_actor exchange) {
  self->state.goal = goal;
  return {
    [self](const troupe::before_run& x) {
      self->state.folder = x.run.folder("judge");
      return troupe::callback_done{};
    },
    [=](const troupe::after_report& x) {
      auto& state = self->state;
      if (!x.checkpoint || state.is_done)
        return troupe::callback_done{};
      weights found{++state.version, {}};
      x.checkpoint->load("policy", found.values);
      policy player{found.values};
      self->send(exchange, std::move(found));
      return look_at(state, *x.checkpoint, player);
    },
    [](const troupe::after_exception& x) {
      for (auto& [rank, failure] : x.ranks)
        std::printf("learner %d: %s\n", rank, to_string(failure).c_str());
      return troupe::callback_done{};
    },
    [](const troupe::after_run&) { return troupe::callback_done{}; },
  };
}
