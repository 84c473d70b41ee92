// How the DRIVER notifies those that follow the run: actors that its caller or
// another process has named, and callbacks about states of the run.

#include <algorithm>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal {

namespace {

follower_window::call call_of(const callback_event& x) {
  using call = follower_window::call;
  if (std::holds_alternative<after_report>(x))
    return call::report;
  return std::holds_alternative<after_run>(x) ? call::last : call::other;
}

} // namespace

run_context driver_state::context_at(std::uint64_t attempt) const {
  auto run = args.context;
  run.attempt = attempt;
  run.world_size = world_size;
  return run;
}

caf::result<run_status> driver_state::follow_from_now(run_observer_actor who) {
  if (!who)
    return to_caf(error{ec::invalid_argument, "no actor to follow the run"});
  auto is_known = std::ranges::any_of(
    followers, [&](const follower& x) { return x.actor == who; });
  if (is_known)
    return status();
  monitor(self, who, [this](const caf::down_msg& x) { lost(x); });
  auto& known = followers.emplace_back(follower{std::move(who)});
  tell(known, before_run{context_at(machine->attempt())});
  if (ending.is_stored()) // The others have been notified.
    tell(known, after_run{args.context.id,
                          args.monitor->prepared().unpacked_if_possible()});
  return status();
}

void driver_state::announce(const callback_event& x) {
  introduce();
  tell_followers(x);
  if (!callbacks)
    return;
  auto ask = [this](const auto& message) {
    request(self, callbacks, caf::infinite, message)
      .then([this](const callback_done& done) { note_answer(done); },
            [](caf::error&) {}); // `callbacks_lost` says it.
  };
  std::visit(ask, x);
}

void driver_state::tell_followers(const callback_event& x) {
  for (auto& who : followers)
    tell(who, x);
}

void driver_state::tell(follower& x, const callback_event& what) {
  auto call = call_of(what);
  auto is_elsewhere = x.actor.node() != self->system().node();
  if (!x.window.takes(call)
      || (is_elsewhere && size_above(longest_message, what)))
    return;
  x.window.called(call);
  auto is_last = call == follower_window::call::last;
  auto answered = [this, who = x.actor.address(), call, is_last] {
    for (auto& known : followers)
      if (known.actor.address() == who)
        known.window.answered(call);
    if (is_last)
      take_next_step();
  };
  auto ask = [&](const auto& message) {
    auto limit = is_last ? caf::timespan{followers_limit} : caf::infinite;
    request(self, x.actor, limit, message)
      .then(
        [this, answered](const callback_done& done) {
          for (auto& order : done.orders)
            carry_out(order);
          answered();
        },
        [answered](caf::error&) { answered(); });
  };
  std::visit(ask, what);
}

std::size_t driver_state::last_calls() const {
  auto owes = [](const follower& x) { return x.window.owes_last(); };
  return static_cast<std::size_t>(std::ranges::count_if(followers, owes));
}

} // namespace troupe::internal
