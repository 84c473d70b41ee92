#pragma once

#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "messages.hpp"

/// The last steps of all environments.
///
/// Each is drawn `draws` times on average, however fast environments and
/// learners are: whoever is ahead by more than `slack` steps has to wait.
class replay_buffer {
public:
  static constexpr std::size_t capacity = 50'000;
  static constexpr std::uint64_t first_draw = 1'000; ///< Steps before it.
  static constexpr std::uint64_t draws = 32;
  static constexpr std::uint64_t slack = 4'000;

  bool wants_more() const {
    return added_ < first_draw + slack + drawn_ / draws;
  }

  bool can_be_drawn_from() const {
    return added_ >= first_draw
           && drawn_ <= draws * (added_ - first_draw + slack);
  }

  void add(const std::vector<transition>& xs);

  /// Any *count* of them; one may come twice.
  std::vector<transition> draw(std::uint64_t count);

  std::uint64_t added() const { return added_; }

private:
  std::vector<transition> all_;
  std::uint64_t added_ = 0;
  std::uint64_t drawn_ = 0;
  std::mt19937_64 random_{1};
};

/// The REPLAY actor: the buffer, who waits for it, and the newest weights.
struct exchange_state {
  static inline constexpr auto name = "replay";

  /// Answers those who need not wait any longer.
  void serve();

  replay_buffer buffer;
  weights newest;
  std::deque<caf::typed_response_promise<void>> adders;
  std::deque<
    std::pair<caf::typed_response_promise<drawn_transitions>, std::uint64_t>>
    drawers;
};

exchange_actor::behavior_type
exchange(exchange_actor::stateful_pointer<exchange_state> self);
