#include "troupe/actors/callback_chain.hpp"

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/process/secrets.hpp"
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

std::string name_of(std::size_t position, const std::string& name) {
  return concat("callback actor ", position + 1, " (", name, ')');
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
         + values * overhead + (x.checkpoint ? x.checkpoint->size() : 0);
}

callback_done done(callback_outcome x) {
  callback_done answer{
    std::chrono::duration<double>(x.spent).count(), x.abort, {}, {}, {}, {}};
  for (auto& error : x.errors)
    answer.failures.push_back(std::move(error));
  answer.times = std::move(x.times);
  return answer;
}

} // namespace

// -- callbacks that are classes

run_observer_actor::behavior_type
callback_runner(run_observer_actor::stateful_pointer<run_context> self,
                user_callback_args args) {
  auto& run = state_of(self);
  return {
    [&run, args](const before_run& x) {
      run = x.run;
      run.control = args.control;
      return done(args.callbacks->before_run(run));
    },
    [&run, args](const after_report& x) {
      run.attempt = x.attempt;
      run.world_size = static_cast<int>(x.values.size());
      run.report_index = x.index;
      std::optional<checkpoint> data;
      if (x.checkpoint)
        data = checkpoint::from_directory(*x.checkpoint);
      return done(args.callbacks->after_report(run, x.values, data));
    },
    [&run, args](const after_exception& x) {
      run.attempt = x.attempt;
      return done(args.callbacks->after_exception(run, x.ranks));
    },
    [&run, args](const after_run& x) {
      return done(args.callbacks->after_run(run, x.outcome));
    },
    [&run, args](const state_changed& x) {
      run.attempt = x.attempt;
      return done(args.callbacks->after_state_change(run, x.from, x.to));
    },
    [&run, args](const group_started& x) {
      run.attempt = x.attempt;
      run.world_size = x.world_size;
      return done(args.callbacks->after_group_start(run));
    },
    [&run, args](const group_ended& x) {
      run.attempt = x.attempt;
      return done(args.callbacks->after_group_end(run, x.reason));
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

caf::result<callback_done> callback_chain_state::add(event x) {
  auto promise = self->make_response_promise<callback_done>();
  rounds.push_back({std::move(x), promise, {}});
  if (rounds.size() == 1 && !begin())
    call_next();
  return promise;
}

bool callback_chain_state::begin() {
  current = 0;
  if (classes) {
    call_classes();
    return true;
  }
  if (!left_classes.empty())
    skip(left_classes);
  return false;
}

void callback_chain_state::call_classes() {
  calling_classes = true;
  open_turn();
  auto send = [this, mine = turn, last = links.empty()](auto& message) {
    auto copy = last ? std::move(message) : message;
    request(self, classes, caf::infinite, std::move(copy))
      .then(
        [this, mine](callback_done& x) {
          if (calling_classes && mine == turn)
            classes_answered(std::move(x));
        },
        [this, mine](caf::error& reason) {
          if (calling_classes && mine == turn)
            classes_answered({0, false, {from_caf(reason)}, {}, {}, {}});
        });
  };
  std::visit(send, rounds.front().what);
}

void callback_chain_state::classes_answered(callback_done x) {
  calling_classes = false;
  close_turn();
  rounds.front().answer = std::move(x);
  call_next();
}

// A loop, not a recursion: there may be many rounds without a call.
void callback_chain_state::call_next() {
  while (!ask_link()) {
    auto& round = rounds.front();
    round.promise.deliver(std::move(round.answer));
    rounds.pop_front();
    if (rounds.empty() || begin())
      return;
  }
}

bool callback_chain_state::ask_link() {
  auto& round = rounds.front();
  while (current < links.size()) {
    auto& x = links[current];
    if (is_for_observers(round.what) && !x.who.observes) {
      round.answer.times.push_back({x.who.name, 0});
      ++current;
      continue;
    }
    if (!x.gone) {
      if (ask(x))
        return true;
      continue;
    }
    if (x.reason)
      fail({std::exchange(x.reason, {})});
    skip(name_of(current, x.who.name));
    round.answer.times.push_back({x.who.name, 0});
    ++current;
  }
  return false;
}

bool callback_chain_state::ask(link& x) {
  open_turn();
  if (auto problem = too_large_for(x)) {
    end_turn({std::move(problem)});
    return false;
  }
  waiting = true;
  // It understands all events that it is asked with.
  auto whom = caf::actor_cast<run_observer_actor>(x.who.actor);
  auto send = [this, &whom, mine = turn](const auto& message) {
    request(self, whom, caf::infinite, message)
      .then(
        [this, mine](callback_done& done) {
          if (waiting && mine == turn)
            answered(std::move(done));
        },
        [this, mine](caf::error& reason) {
          if (waiting && mine == turn)
            refused(reason);
        });
  };
  std::visit(send, rounds.front().what);
  return true;
}

error callback_chain_state::too_large_for(const link& x) {
  if (x.who.actor.node() == self->system().node())
    return {};
  auto& event = rounds.front().what;
  auto size = size_above(args.longest_message, event);
  if (!size)
    return {};
  return {ec::callback_failed,
          concat(name_of(current, x.who.name), " was not called: its ",
                 hook_of(event), " takes ", *size,
                 " bytes, and a message to another process holds ",
                 args.longest_message)};
}

void callback_chain_state::answered(callback_done done) {
  waiting = false;
  auto& failures = done.failures;
  links[current].refused = !failures.empty();
  if (done.order)
    rounds.front().answer.orders.push_back(std::move(*done.order));
  for (auto& x : failures)
    x = {ec::callback_failed,
         name_of(current, links[current].who.name) + " failed in "
           + std::string{hook_of(rounds.front().what)} + ": " + x.message};
  end_turn(std::move(failures));
  call_next();
}

void callback_chain_state::refused(const caf::error& reason) {
  if (reason == caf::sec::request_receiver_down)
    lose(current, {});
  else
    answered({0, false, {{ec::callback_failed, text_of(reason)}}, {}, {}, {}});
}

void callback_chain_state::lose(std::size_t position,
                                const caf::error& reason) {
  auto& x = links[position];
  if (std::exchange(x.gone, true))
    return;
  auto asked = waiting && position == current;
  // An exception that ends it is also its last answer: it counts once.
  if (x.refused && !asked)
    return;
  x.reason = {ec::callback_failed, name_of(position, x.who.name) + ' '
                                     + exit_text(reason)
                                     + "; the run continues without it"};
  if (asked) {
    waiting = false;
    skip(name_of(position, x.who.name));
    end_turn({std::exchange(x.reason, {})});
    call_next();
  }
}

void callback_chain_state::fail(std::vector<error> failures) {
  auto& answer = rounds.front().answer;
  for (auto& x : failures) {
    x.message = cut_reason(redacted(x.message));
    answer.failures.push_back(std::move(x));
    answer.abort = args.callback_errors == callback_errors::abort;
  }
}

void callback_chain_state::skip(std::string who) {
  rounds.front().answer.skipped.push_back(std::move(who));
}

void callback_chain_state::end_turn(std::vector<error> failures) {
  close_turn();
  std::chrono::duration<double> spent = self->clock().now() - called_at;
  auto& answer = rounds.front().answer;
  answer.seconds += spent.count();
  answer.times.push_back({links[current].who.name, spent.count()});
  fail(std::move(failures));
  ++current;
}

// -- those that do not answer

void callback_chain_state::open_turn() {
  ++turn;
  called_at = self->clock().now();
  watchdog.asked(called_at, args.now());
  watch_turn();
}

void callback_chain_state::close_turn() {
  watchdog.answered();
}

void callback_chain_state::watch_turn() {
  auto next = watchdog.next_check(self->clock().now());
  if (!next || std::exchange(watchdog_is_set, true))
    return;
  self->run_delayed(*next, [this] { check_turn(); });
}

void callback_chain_state::check_turn() {
  watchdog_is_set = false;
  auto now = self->clock().now();
  auto waited = [&] {
    return concat(watchdog.waited(now).count() / 1000, " s");
  };
  switch (watchdog.check(now, args.now())) {
    case callback_watchdog::verdict::wait:
      break;
    case callback_watchdog::verdict::name:
      if (args.patience.note)
        args.patience.note(current_callback() + " has not returned for "
                           + waited() + "; the run waits for it");
      break;
    case callback_watchdog::verdict::give_up:
      give_up(waited());
      break;
  }
  watch_turn();
}

std::string callback_chain_state::current_callback() const {
  if (waiting)
    return name_of(current, links[current].who.name) + " in "
           + std::string{hook_of(rounds.front().what)};
  auto text = args.watch ? args.watch->text() : std::string{};
  return text.empty() ? "the thread of the callbacks" : text;
}

void callback_chain_state::give_up(const std::string& waited) {
  error reason{ec::callback_failed, current_callback() + " did not return for "
                                      + waited
                                      + "; the run continues without it"};
  if (waiting) {
    links[current].gone = true;
    waiting = false;
    skip(name_of(current, links[current].who.name));
    end_turn({std::move(reason)});
    call_next();
    return;
  }
  reason.message += " and the callbacks beside it, whose thread is left behind";
  left_classes = args.watch ? args.watch->who() : std::string{};
  if (left_classes.empty())
    left_classes = "a callback";
  left_classes += " and those beside it";
  skip(left_classes);
  calling_classes = false;
  self->unlink_from(classes);
  classes = nullptr;
  if (args.patience.left_behind)
    *args.patience.left_behind = true;
  close_turn();
  fail({std::move(reason)});
  call_next();
}

run_observer_actor::behavior_type
callback_chain(callback_chain_state::pointer self, callback_chain_args args) {
  auto& state = state_of(self);
  state.self = self;
  auto on_down = [&state](const caf::down_msg& x) {
    for (std::size_t i = 0; i < state.links.size(); ++i)
      if (state.links[i].who.actor.address() == x.source)
        state.lose(i, x.reason);
  };
  for (auto& x : args.actors) {
    monitor(self, x.actor, on_down);
    state.links.push_back({std::move(x)});
  }
  state.classes = std::move(args.classes);
  state.args = std::move(args);
  state.watchdog =
    callback_watchdog{state.args.patience.timeout, state.args.patience.limit};
  if (state.classes)
    self->link_to(state.classes);
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
