#include "troupe/trainers/node_agent.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/inheritance.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/run/signal_orders.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"
#include "troupe/trainers/driver_link.hpp"
#include "troupe/trainers/run_membership.hpp"

namespace troupe::internal {

namespace {

/// How long an agent leaves the driver alone that has ended a run, and again if
/// it had no place: the port stays open while trackers send the rest, which may
/// take minutes, and there may be a thousand agents.
constexpr retry_delay run_pause{std::chrono::seconds{1},
                                std::chrono::seconds{10}};

/// How often an agent that is about to leave looks for further signals.
constexpr auto signal_interval = std::chrono::milliseconds{100};

agent_end failed_end(const error& reason) {
  switch (reason.code) {
    case ec::timeout:
    case ec::stopped:
    case ec::conflict: // All places are taken; one may become free.
    case ec::storage:  // It is full, for example.
    case ec::spawn:
      return {agent_exit::try_again, reason.message};
    default:
      return {agent_exit::never, reason.message};
  }
}

agent_end asked_to_leave() {
  return {agent_exit::try_again, "a signal asked it to leave"};
}

/// What an agent watches without a place, when it does not know the signals of
/// its run. Schedulers send SIGUSR2, too, which would kill it.
std::vector<int> signals_without_place() {
  auto result = default_preempt_signals();
  result.push_back(SIGUSR2);
  return result;
}

/// Says what an agent does that was started by hand. Of one that a driver or
/// mpirun has started, the driver says enough.
run_membership::note_function notes_of(const agent_orders& x) {
  auto by_hand = x.launch == 0 && x.ticket_text.empty();
  return [by_hand](const std::string& what) {
    if (by_hand)
      print_agent_note(what);
  };
}

/// What it waits for first.
std::string search_text(const agent_orders& x) {
  auto limit = duration_text(search_patience);
  if (!x.ticket.empty())
    return concat("waits up to ", limit, " for the ticket ", x.ticket,
                  " and the driver that it names");
  return concat("waits up to ", duration_text(ticket_patience),
                " for a ticket on standard input, then up to ", limit,
                " for the driver that it names");
}

/// Is readable as soon as the agent has to leave although it has no place yet:
/// after a signal, or if its launcher is gone, whose end closes standard input.
class leave_request {
public:
  leave_request(const interrupt_watch& signals, bool is_launched) {
    watch(signals.fd());
    // Not if it is a file, which cannot be watched.
    if (is_launched)
      watch(STDIN_FILENO);
  }

  int fd() const noexcept { return either_.get(); }

private:
  void watch(int fd) {
    epoll_event what{};
    what.events = EPOLLIN;
    ::epoll_ctl(either_.get(), EPOLL_CTL_ADD, fd, &what);
  }

  unique_fd either_{::epoll_create1(EPOLL_CLOEXEC)};
};

/// Waits until the driver or a signal ends this agent. After a signal that
/// announces a preemption, the run gets its grace, and the signal is the reason
/// of whatever end comes; after another one it does not.
agent_end await_end(run_membership& agent, const interrupt_watch& signals) {
  using clock = std::chrono::steady_clock;
  pollfd sources[] = {{agent.ending()->fd(), POLLIN, 0},
                      {signals.fd(), POLLIN, 0}};
  for (agent_signals orders;;) {
    auto is_leaving = orders.has_given_notice();
    ::poll(sources, 2,
           is_leaving ? static_cast<int>(signal_interval.count()) : -1);
    if (auto end = agent.ending()->first())
      return is_leaving ? asked_to_leave() : *end;
    auto step = orders.next(signals_seen::by(signals), clock::now());
    if (step == agent_signals::step::leave)
      return asked_to_leave();
    if (step == agent_signals::step::wait)
      continue;
    sources[1].fd = -1; // It stays readable.
    auto grace = sender_grace_of_host().value_or(std::nullopt);
    orders.gave_notice(clock::now(), grace);
    agent.give_notice(
      concat("its agent got ", signal_text(signals.asking_signal())), grace);
  }
}

/// What became of one run.
struct served_run {
  agent_end end;
  bool had_place = false; ///< This host was a part of it.
  bool is_silent = false; ///< It did not answer.
};

/// An agent that serves runs.
class agent_service {
public:
  agent_service(const agent_orders& orders, spawner_connection* spawner,
                const interrupt_watch& signals,
                std::shared_ptr<const inheritance> inherited)
    : orders_(orders), spawner_(spawner), signals_(signals),
      note_(notes_of(orders)), inherited_(std::move(inherited)),
      leave_(signals, orders.launch != 0) {}

  agent_end serve() {
    auto end = serve_first();
    auto stays = orders_.next_run.count() > 0 && end.code == agent_exit::done;
    return stays ? serve_next() : end;
  }

private:
  expected<found_driver> find(std::chrono::milliseconds patience) {
    return find_driver(orders_.ticket, orders_.ticket_text, leave_.fd(),
                       patience);
  }

  served_run take_part(found_driver driver) {
    run_membership agent{spawner_, orders_.launch, note_, inherited_};
    auto joined = agent.join(std::move(driver), leave_.fd());
    if (joined) {
      const interrupt_watch signals{agent.preempt_signals()};
      return {await_end(agent, signals), true, false};
    }
    if (auto early = agent.ending()->first())
      return {*early, false, false};
    return {failed_end(joined.error()), false,
            joined.error().code == ec::timeout};
  }

  agent_end serve_first() {
    note_(search_text(orders_));
    auto deadline = std::chrono::steady_clock::now() + join_patience;
    for (;;) {
      auto found =
        find(orders_.launch != 0 ? launched_patience : search_patience);
      if (!found && orders_.looks_again && found.error().code == ec::timeout)
        return {agent_exit::try_again, {}};
      if (!found)
        return failed_end(found.error());
      auto run = take_part(std::move(*found));
      // The port is open before the run takes agents: a driver waits for ranks
      // of the one before it, or verifies checkpoints. What came by standard
      // input cannot be read again, but then the run takes agents already.
      auto has_ticket = !orders_.ticket.empty() || !orders_.ticket_text.empty();
      if (!run.is_silent || !has_ticket
          || std::chrono::steady_clock::now() >= deadline)
        return run.end;
    }
  }

  /// Serves what follows a run that has finished. Ends as that run did if there
  /// is no driver any more; one that is there may begin a run at any time.
  agent_end serve_next() {
    auto random = make_random_function();
    for (int pauses = 1;; ++pauses) {
      wait_until_ready(leave_.fd(), POLLIN,
                       std::chrono::steady_clock::now()
                         + with_jitter(run_pause.after(pauses), random()));
      auto found = find(orders_.next_run);
      if (signals_.asked() != interrupt::none)
        return asked_to_leave();
      if (!found && found.error().code == ec::timeout)
        return {};
      if (!found)
        return failed_end(found.error());
      auto run = take_part(std::move(*found));
      auto is_over = run.had_place ? run.end.code != agent_exit::done
                                   : run.end.code == agent_exit::never;
      if (is_over)
        return run.end;
      if (run.had_place)
        pauses = 0;
    }
  }

  const agent_orders& orders_;
  spawner_connection* spawner_;
  const interrupt_watch& signals_;
  run_membership::note_function note_;
  std::shared_ptr<const inheritance> inherited_;
  leave_request leave_;
};

agent_end serve(const agent_orders& orders, const interrupt_watch& signals) {
  auto spawns = spawner();
  if (!spawns)
    return failed_end(spawns.error());
  auto inherited = inherit((*spawns)->variables());
  if (!inherited)
    return failed_end(inherited.error());
  return agent_service{orders, *spawns, signals, std::move(*inherited)}.serve();
}

} // namespace

agent_outcome run_node_agent(const agent_orders& orders) {
  agent_end end;
  auto has_to_leave = false;
  try {
    interrupt_watch signals{signals_without_place()};
    end = serve(orders, signals);
    has_to_leave = signals.asked() != interrupt::none;
    signals.answer(interrupt::stop);
  } catch (...) {
    end = {agent_exit::try_again, caught("the agent failed").message};
  }
  if (!end.why.empty())
    print_agent_end(end.why);
  return {end.code, has_to_leave};
}

} // namespace troupe::internal
