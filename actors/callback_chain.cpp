#include "troupe/actors/callback_chain.hpp"

#include "troupe/actors/actor_end.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe {

namespace {

std::string_view hook_of(const callback_chain_state::event& x) {
  constexpr std::string_view hooks[] = {"before_run", "after_report",
                                        "after_exception", "after_run"};
  return hooks[x.index()];
}

std::string name_of(std::size_t position, const std::string& name) {
  return "callback actor " + std::to_string(position + 1) + " (" + name + ')';
}

std::string why_gone(const caf::error& reason) {
  if (!reason || reason == caf::exit_reason::normal)
    return "has ended";
  if (reason == caf::exit_reason::remote_link_unreachable)
    return "can not be reached any more";
  return "has ended: " + text_of(reason);
}

} // namespace

caf::result<callback_done> callback_chain_state::add(event x) {
  auto promise = self->make_response_promise<callback_done>();
  rounds.push_back({std::move(x), promise, {}});
  if (rounds.size() == 1)
    begin();
  return promise;
}

void callback_chain_state::begin() {
  current = 0;
  if (args.classes)
    ask_classes();
  else
    ask_next();
}

void callback_chain_state::ask_classes() {
  auto send = [this](const auto& message) {
    self->request(args.classes, caf::infinite, message)
      .then(
        [this](callback_done& x) {
          rounds.front().answer = std::move(x);
          ask_next();
        },
        [this](caf::error& reason) {
          rounds.front().answer.failures.push_back(from_caf(reason));
          ask_next();
        });
  };
  std::visit(send, rounds.front().what);
}

void callback_chain_state::ask_next() {
  auto& round = rounds.front();
  for (; current < links.size(); ++current) {
    auto& x = links[current];
    auto skipped =
      round.answer.abort && !std::holds_alternative<after_run>(round.what);
    if (!skipped && !x.gone) {
      ask(x);
      return;
    }
    if (!skipped && x.reason)
      fail({std::exchange(x.reason, {})});
    round.answer.times.push_back({x.who.name, 0});
  }
  round.promise.deliver(std::move(round.answer));
  rounds.pop_front();
  if (!rounds.empty())
    begin();
}

void callback_chain_state::ask(link& x) {
  waiting = true;
  asked_at = self->clock().now();
  auto send = [this, &x, mine = ++turn](const auto& message) {
    self->request(x.who.actor, caf::infinite, message)
      .then(
        [this, mine](callback_done& done) {
          if (waiting && mine == turn)
            answered(std::move(done.failures));
        },
        [this, mine](caf::error& reason) {
          if (waiting && mine == turn)
            refused(reason);
        });
  };
  std::visit(send, rounds.front().what);
}

void callback_chain_state::answered(std::vector<error> failures) {
  waiting = false;
  links[current].refused = !failures.empty();
  for (auto& x : failures)
    x = {ec::callback_failed,
         name_of(current, links[current].who.name) + " failed in "
           + std::string{hook_of(rounds.front().what)} + ": " + x.message};
  end_turn(std::move(failures));
}

void callback_chain_state::refused(const caf::error& reason) {
  if (reason == caf::sec::request_receiver_down)
    lose(current, {});
  else
    answered({{ec::callback_failed, text_of(reason)}});
}

void callback_chain_state::lose(std::size_t position,
                                const caf::error& reason) {
  auto& x = links[position];
  if (std::exchange(x.gone, true))
    return;
  auto asked = waiting && position == current;
  // What ends it by an exception is its last answer, too: it counts once.
  if (x.refused && !asked)
    return;
  x.reason = {ec::callback_failed, name_of(position, x.who.name) + ' '
                                     + why_gone(reason)
                                     + "; the run goes on without it"};
  if (asked) {
    waiting = false;
    end_turn({std::exchange(x.reason, {})});
  }
}

void callback_chain_state::fail(std::vector<error> failures) {
  auto& answer = rounds.front().answer;
  for (auto& x : failures) {
    answer.failures.push_back(std::move(x));
    answer.abort = args.callback_errors == callback_errors::abort;
  }
}

void callback_chain_state::end_turn(std::vector<error> failures) {
  std::chrono::duration<double> spent = self->clock().now() - asked_at;
  auto& answer = rounds.front().answer;
  answer.seconds += spent.count();
  answer.times.push_back({links[current].who.name, spent.count()});
  fail(std::move(failures));
  ++current;
  ask_next();
}

user_callback_actor::behavior_type
callback_chain(callback_chain_state::pointer self, callback_chain_args args) {
  auto& state = self->state;
  state.self = self;
  for (auto& x : args.actors) {
    self->monitor(x.actor);
    state.links.push_back({std::move(x)});
  }
  state.args = std::move(args);
  if (state.args.classes)
    self->link_to(state.args.classes);
  self->set_down_handler([&state](const caf::down_msg& x) {
    for (std::size_t i = 0; i < state.links.size(); ++i)
      if (state.links[i].who.actor.address() == x.source)
        state.lose(i, x.reason);
  });
  return {
    [&state](before_run& x) { return state.add(std::move(x)); },
    [&state](after_report& x) { return state.add(std::move(x)); },
    [&state](after_exception& x) { return state.add(std::move(x)); },
    [&state](after_run& x) { return state.add(std::move(x)); },
  };
}

} // namespace troupe
