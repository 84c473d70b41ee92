#pragma once

#include <cstdint>
#include <vector>

#include <troupe/actors.hpp>

#include "cart_pole.hpp"

// What environments, learners and the replay say to each other.

/// A step of an environment, with the rewards of the next few added up.
struct transition {
  observation from{};
  std::int32_t action = 0;
  float reward = 0;
  float discount = 0; ///< For the worth of `to`; 0: the pole has fallen.
  observation to{};
};

template <class Inspector>
bool inspect(Inspector& f, transition& x) {
  return f.object(x).fields(
    f.field("from", x.from), f.field("action", x.action),
    f.field("reward", x.reward), f.field("discount", x.discount),
    f.field("to", x.to));
}

/// From an environment.
struct add_transitions {
  std::vector<transition> all;
};

template <class Inspector>
bool inspect(Inspector& f, add_transitions& x) {
  return f.object(x).fields(f.field("all", x.all));
}

/// From a learner.
struct draw_transitions {
  std::uint64_t count = 0;
};

template <class Inspector>
bool inspect(Inspector& f, draw_transitions& x) {
  return f.object(x).fields(f.field("count", x.count));
}

struct drawn_transitions {
  std::vector<transition> all;
};

template <class Inspector>
bool inspect(Inspector& f, drawn_transitions& x) {
  return f.object(x).fields(f.field("all", x.all));
}

/// From an environment, which plays by this version of the weights.
struct get_weights {
  std::uint64_t version = 0;
};

template <class Inspector>
bool inspect(Inspector& f, get_weights& x) {
  return f.object(x).fields(f.field("version", x.version));
}

/// The newest weights: the version counts the checkpoints.
struct weights {
  std::uint64_t version = 0; ///< 0: there are none yet.
  std::vector<float> values; ///< Empty: the version asked about is the newest.
};

template <class Inspector>
bool inspect(Inspector& f, weights& x) {
  return f.object(x).fields(f.field("version", x.version),
                            f.field("values", x.values));
}

/// All of it, for the other processes.
using exchange_actor = caf::typed_actor<
  // Answers once the replay wants more.
  caf::result<void>(add_transitions),
  // Answers once there are enough new ones.
  caf::result<drawn_transitions>(draw_transitions),
  // Answers at once.
  caf::result<weights>(get_weights),
  // From the judge: environments are to play by these.
  caf::result<void>(weights)>;

/// To a learner's mailbox.
struct use_replay {
  exchange_actor replay;
};

template <class Inspector>
bool inspect(Inspector& f, use_replay& x) {
  return f.object(x).fields(f.field("replay", x.replay));
}

// The ids of a program's own messages begin where Troupe's end.
CAF_BEGIN_TYPE_ID_BLOCK(actor_learner, ::troupe::first_user_type_id)
CAF_ADD_TYPE_ID(actor_learner, (add_transitions))
CAF_ADD_TYPE_ID(actor_learner, (draw_transitions))
CAF_ADD_TYPE_ID(actor_learner, (drawn_transitions))
CAF_ADD_TYPE_ID(actor_learner, (get_weights))
CAF_ADD_TYPE_ID(actor_learner, (weights))
CAF_ADD_TYPE_ID(actor_learner, (use_replay))
CAF_END_TYPE_ID_BLOCK(actor_learner)
