#include "troupe/actors/callback_chain.hpp"

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

std::string_view hook_of(const callback_chain_state::event& x) {
  constexpr std::string_view hooks[] = {
    "before_run",    "after_report",  "after_exception", "after_run",
    "state_changed", "group_started", "group_ended"};
  static_assert(std::size(hooks) == std::variant_size_v<callback_event>);
  return hooks[x.index()];
}

/// Whether only a `run_observer_actor` understands *x*.
bool is_for_observers(const callback_event& x) {
  return std::holds_alternative<state_changed>(x)
         || std::holds_alternative<group_started>(x)
         || std::holds_alternative<group_ended>(x);
}

std::string exit_text(const caf::error& reason) {
  if (reason == caf::none || reason == caf::exit_reason::normal)
    return "has ended";
  if (reason == caf::exit_reason::remote_link_unreachable)
    return "can no longer be reached";
  return "has ended: " + text_of(reason);
}

/// Bytes that *x* takes in a message, or more.
std::size_t most_bytes_of(const after_report& x) {
  constexpr std::size_t overhead = 16; // Of a name and its value.
  std::size_t values = 0;
  for (auto& of_rank : x.values)
    values += of_rank.size();
  return 4096 + x.values.size() * (max_metrics_bytes + overhead)
         + values * overhead + (x.checkpoint ? x.checkpoint->path().size() : 0);
}

} // namespace

// -- callbacks that are classes

run_observer_actor::behavior_type
callback_runner(run_observer_actor::stateful_pointer<run_context> self,
                callback_runner_args args) {
  auto& run = state_of(self);
  return {
    [&run, args](const before_run& x) {
      run = x.run;
      run.control = args.control;
      return args.callbacks->before_run(run);
    },
    [&run, args](const after_report& x) {
      run.attempt = x.attempt;
      run.world_size = static_cast<int>(x.values.size());
      run.report_index = x.index;
      return args.callbacks->after_report(run, x.values, x.checkpoint);
    },
    [&run, args](const after_exception& x) {
      run.attempt = x.attempt;
      return args.callbacks->after_exception(run, x.ranks);
    },
    [&run, args](const after_run& x) {
      return args.callbacks->after_run(run, x.outcome);
    },
    [&run, args](const state_changed& x) {
      run.attempt = x.attempt;
      return args.callbacks->after_state_change(run, x.from, x.to);
    },
    [&run, args](const group_started& x) {
      run.attempt = x.attempt;
      run.world_size = x.world_size;
      return args.callbacks->after_group_start(run);
    },
    [&run, args](const group_ended& x) {
      run.attempt = x.attempt;
      return args.callbacks->after_group_end(run, x.reason);
    },
  };
}

// -- the chain

std::optional<std::size_t> size_above(std::size_t longest,
                                      const callback_event& x) {
  // Most reports are far from the limit. The other events are rare.
  if (auto report = std::get_if<after_report>(&x);
      report && most_bytes_of(*report) <= longest)
    return std::nullopt;
  caf::byte_buffer bytes;
  auto sink = serializer_to(bytes);
  std::visit([&](const auto& message) { (void) sink.apply(message); }, x);
  return bytes.size() > longest ? std::optional{bytes.size()} : std::nullopt;
}

void callback_chain_state::set_up(pointer own, callback_chain_args given) {
  self = own;
  args = std::move(given);
  auto on_down = [this](const caf::down_msg& x) {
    for (std::size_t i = 0; i < args.actors.size(); ++i)
      if (args.actors[i].actor.address() == x.source)
        lose(i, x.reason);
  };
  std::vector<callback_turns::actor> known;
  for (auto& x : args.actors) {
    monitor(self, x.actor, on_down);
    known.push_back({x.name, x.observes});
  }
  turns = callback_turns{std::move(known), static_cast<bool>(args.classes),
                         args.callback_errors == callback_errors::abort};
  watchdog = callback_watchdog{args.patience.timeout, args.patience.limit};
  if (args.classes)
    self->link_to(args.classes);
}

caf::result<callback_done> callback_chain_state::add(event x) {
  auto promise = self->make_response_promise<callback_done>();
  rounds.push_back({std::move(x), promise});
  if (rounds.size() == 1) {
    begin();
    call_next();
  }
  return promise;
}

void callback_chain_state::begin() {
  auto& what = rounds.front().what;
  turns.begin({hook_of(what), is_for_observers(what)});
}

// A loop, not a recursion: there may be many rounds without a call.
void callback_chain_state::call_next() {
  while (!rounds.empty()) {
    if (auto turn = turns.next(now())) {
      if (call(*turn))
        return;
      continue;
    }
    rounds.front().promise.deliver(turns.take_outcome());
    rounds.pop_front();
    if (!rounds.empty())
      begin();
  }
}

bool callback_chain_state::call(const callback_turns::turn& x) {
  if (x.actor) {
    if (auto why = too_large_for(*x.actor); !why.empty()) {
      turns.not_called(why, now());
      return false;
    }
    call_actor(x.number, *x.actor);
  } else {
    call_classes(x.number);
  }
  watchdog.asked(now(), args.now());
  watch_turn();
  return true;
}

void callback_chain_state::call_classes(std::uint64_t turn) {
  auto take = [this, turn](callback_done x) {
    if (!turns.awaits(turn))
      return;
    turns.classes_answered(std::move(x));
    end_turn();
  };
  auto send = [&, last = args.actors.empty()](auto& message) {
    auto copy = last ? std::move(message) : message;
    request(self, args.classes, caf::infinite, std::move(copy))
      .then(
        [take](callback_done& x) { take(std::move(x)); },
        [take](caf::error& reason) { take({.failures = {from_caf(reason)}}); });
  };
  std::visit(send, rounds.front().what);
}

void callback_chain_state::call_actor(std::uint64_t turn,
                                      std::size_t position) {
  // It understands all events that it is asked with.
  auto whom = caf::actor_cast<run_observer_actor>(args.actors[position].actor);
  auto send = [&](const auto& message) {
    request(self, whom, caf::infinite, message)
      .then(
        [this, turn](callback_done& x) {
          if (turns.awaits(turn))
            answered(std::move(x));
        },
        [this, turn, position](caf::error& reason) {
          if (turns.awaits(turn))
            refused(position, reason);
        });
  };
  std::visit(send, rounds.front().what);
}

std::string callback_chain_state::too_large_for(std::size_t position) const {
  if (args.actors[position].actor.node() == self->system().node())
    return {};
  auto size = size_above(args.longest_message, rounds.front().what);
  if (!size)
    return {};
  return concat("takes ", *size,
                " bytes, and a message to another process holds ",
                args.longest_message);
}

void callback_chain_state::answered(callback_done x) {
  turns.answered(std::move(x), now());
  end_turn();
}

void callback_chain_state::refused(std::size_t position,
                                   const caf::error& reason) {
  if (reason == caf::sec::request_receiver_down)
    lose(position, {});
  else
    answered({.failures = {{ec::callback_failed, text_of(reason)}}});
}

void callback_chain_state::lose(std::size_t position,
                                const caf::error& reason) {
  if (turns.lost(position, exit_text(reason), now()))
    end_turn();
}

void callback_chain_state::end_turn() {
  watchdog.answered();
  call_next();
}

// -- those that do not answer

void callback_chain_state::watch_turn() {
  auto next = watchdog.next_check(now());
  if (!next || std::exchange(watchdog_is_set, true))
    return;
  self->run_delayed(*next, [this] { check_turn(); });
}

void callback_chain_state::check_turn() {
  watchdog_is_set = false;
  auto waited = [this] { return duration_text(watchdog.waited(now())); };
  switch (watchdog.check(now(), args.now())) {
    case callback_watchdog::verdict::wait:
      break;
    case callback_watchdog::verdict::name:
      if (args.patience.note)
        args.patience.note(turns.current(running_class())
                           + " has not returned for " + waited()
                           + "; the run waits for it");
      break;
    case callback_watchdog::verdict::give_up:
      give_up(waited());
      break;
  }
  watch_turn();
}

callback_turns::running_class callback_chain_state::running_class() const {
  if (!args.watch)
    return {};
  return {args.watch->who(), args.watch->text()};
}

void callback_chain_state::give_up(const std::string& waited) {
  if (turns.give_up(waited, running_class(), now())) {
    self->unlink_from(args.classes);
    args.classes = nullptr;
    if (args.patience.left_behind)
      *args.patience.left_behind = true;
  }
  end_turn();
}

run_observer_actor::behavior_type
callback_chain(callback_chain_state::pointer self, callback_chain_args args) {
  auto& state = state_of(self);
  state.set_up(self, std::move(args));
  return {
    [&state](before_run& x) { return state.add(std::move(x)); },
    [&state](after_report& x) { return state.add(std::move(x)); },
    [&state](after_exception& x) { return state.add(std::move(x)); },
    [&state](after_run& x) { return state.add(std::move(x)); },
    [&state](state_changed& x) { return state.add(std::move(x)); },
    [&state](group_started& x) { return state.add(std::move(x)); },
    [&state](group_ended& x) { return state.add(std::move(x)); },
  };
}

} // namespace troupe::internal
