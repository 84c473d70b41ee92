#pragma once

#include "messages.hpp"

struct judge_state {
  static inline constexpr auto name = "judge";

  double goal = 0;         ///< Mean reward.
  troupe::fs::path folder; ///< For the policy that reaches the goal, and why.
  std::uint64_t version = 0;
  bool is_done = false;
};

/// The JUDGE actor: a callback of the run that plays by each checkpoint, gives
/// it to the environments, and ends the run when it is good enough. Spawn it
/// detached: playing takes time.
troupe::user_callback_actor::behavior_type
judge(troupe::user_callback_actor::stateful_pointer<judge_state> self,
      double goal, exchange_actor exchange);
