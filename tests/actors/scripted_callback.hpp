#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "troupe/actors/callback_actor.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal::test {

/// What a user's actor does, and which events it received.
struct actor_script {
  std::vector<std::string>* log = nullptr;
  std::string name;
  std::string fails_in;  ///< Answers an error.
  std::string throws_in; ///< Ends by an exception.
  std::string keeps_in;  ///< Never answers, or for an event about ranks that
                         ///< failed.
  std::vector<caf::typed_response_promise<callback_done>> kept = {};
};

using script = std::shared_ptr<actor_script>;

inline caf::result<callback_done> play(user_callback_actor::pointer self,
                                       actor_script& x, const std::string& hook,
                                       const std::string& more) {
  x.log->push_back(x.name + ' ' + hook + more);
  if (hook == "after_exception")
    for (auto& late : std::exchange(x.kept, {}))
      late.deliver(callback_done{});
  if (hook == x.throws_in)
    throw std::runtime_error{"off"};
  if (hook == x.fails_in)
    return to_caf(error{ec::storage, "no space left"});
  if (hook == x.keeps_in) {
    x.kept.push_back(self->make_response_promise<callback_done>());
    return x.kept.back();
  }
  return callback_done{};
}

inline user_callback_actor::behavior_type
played_actor(user_callback_actor::pointer self, script x) {
  return {
    [=](const before_run& m) {
      return play(self, *x, "before_run", ' ' + m.run.name);
    },
    [=](const after_report& m) {
      return play(self, *x, "after_report", ' ' + std::to_string(m.index));
    },
    [=](const after_exception& m) {
      return play(self, *x, "after_exception",
                  ' ' + std::to_string(m.ranks.size()));
    },
    [=](const after_run& m) {
      return play(self, *x, "after_run",
                  ' ' + std::string{to_string(m.outcome.status)});
    },
  };
}

} // namespace troupe::internal::test
