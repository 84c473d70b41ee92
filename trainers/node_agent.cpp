#include "troupe/trainers/node_agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

#include "troupe/actors/agent_pulse.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/host_agent.hpp"
#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/hosts/agent_facts.hpp"
#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run/signal_orders.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"
#include "troupe/trainers/driver_link.hpp"

namespace troupe::internal {

namespace {

/// How long an agent asks for a place.
constexpr auto join_patience = std::chrono::seconds{120};

/// How often it asks for a place meanwhile, unless the driver calls it: what
/// its host sees of the storage may change.
constexpr auto place_interval = std::chrono::milliseconds{500};

/// How long the storage may show another attempt than the one that the driver
/// names again and again, because the host reads files late.
constexpr auto storage_patience = std::chrono::seconds{10};

/// How long an agent leaves the driver alone that has ended a run: its port may
/// still be open.
constexpr auto run_pause = std::chrono::seconds{1};

/// How often an agent that is about to leave looks for further signals.
constexpr auto signal_interval = std::chrono::milliseconds{100};

/// Why an agent ends.
struct agent_end {
  agent_exit code = agent_exit::done;
  std::string why;
};

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

// -- until it has a place

using note_function = std::function<void(const std::string&)>;

/// Says what an agent does that was started by hand. Of one that a driver or
/// mpirun has started, the driver says enough.
note_function notes_of(const agent_orders& x) {
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

// -- the end

/// The first thing that ends this agent. Any thread.
class agent_ending {
public:
  void end(agent_end x) {
    std::lock_guard guard{mutex_};
    if (first_)
      return;
    first_ = std::move(x);
    event_.notify();
  }

  std::optional<agent_end> first() const {
    std::lock_guard guard{mutex_};
    return first_;
  }

  int fd() const noexcept { return event_.fd(); }

private:
  mutable std::mutex mutex_;
  std::optional<agent_end> first_;
  wake_event event_;
};

bool is_orderly(const caf::error& reason) {
  return reason == caf::none || reason == caf::exit_reason::user_shutdown;
}

/// Why an agent ends whose actor, or whose driver's, is gone for *reason*;
/// *what* says which.
agent_end end_of(const caf::error& reason, const std::string& what) {
  if (is_orderly(reason))
    return {};
  if (says_unfinished(reason))
    return {agent_exit::try_again, text_of(reason)};
  if (reason == caf::exit_reason::remote_link_unreachable)
    return {agent_exit::try_again, what};
  return {agent_exit::try_again, concat(what, ": ", text_of(reason))};
}

/// The end of *whom* ends this agent.
template <class Handle>
void end_with(const Handle& whom, std::shared_ptr<agent_ending> ending,
              std::string what) {
  auto tell = [ending = std::move(ending),
               what = std::move(what)](const caf::error& reason) {
    ending->end(end_of(reason, what));
  };
  caf::actor_cast<caf::abstract_actor*>(whom)->attach_functor(std::move(tell));
}

// -- the host

/// Whether files can be made where ranks write their logs.
expected<void> check_storage(const host_accepted& x) {
  TROUPE_TRY_VOID(open_ranks_ticket(x.run_path, x.token));
  auto logs = fs::path{x.run_path} / run_layout::logs;
  auto made = make_temporary(AT_FDCWD, logs / agent_trial, 0600);
  if (!made.file)
    return failure(
      may_pass(made.code) ? ec::storage : ec::invalid_config,
      concat("this host cannot write to the run's storage: ",
             storage_error("create a file in", logs, made.code).message));
  ::unlink(made.path.c_str());
  return {};
}

/// When the storage first showed another attempt than that of a token.
class first_look {
public:
  /// Notes that it still does. Returns whether the limit has passed: not if it
  /// was not looked at for a while.
  bool is_over(std::uint64_t token) {
    auto now = std::chrono::steady_clock::now();
    if (token_ != token || now - last_ > storage_patience / 2)
      since_ = now;
    last_ = now;
    token_ = token;
    return now - since_ >= storage_patience;
  }

private:
  std::optional<std::uint64_t> token_;
  std::chrono::steady_clock::time_point since_;
  std::chrono::steady_clock::time_point last_;
};

/// What this host has to say about the settings of its driver.
host_checked check_host(const host_accepted& x, std::uint64_t incarnation,
                        first_look& look) {
  host_checked result;
  result.node_rank = x.node_rank;
  result.incarnation = incarnation;
  if (auto fit = check_storage(x); !fit) {
    result.problem = fit.error();
    if (fit.error().code == ec::conflict && look.is_over(x.token))
      result.problem.code = ec::invalid_config;
  }
  if (result.problem || x.network_interface.empty())
    return result;
  if (auto own = find_own_address(x.network_interface); !own)
    result.problem = own.error();
  else
    result.address = own->address;
  return result;
}

/// The agent of this host, connected to its driver.
class node_agent {
public:
  node_agent(spawner_connection* spawner, std::uint64_t launch,
             note_function note)
    : launch_(launch), note_(std::move(note)), system_(config_),
      launcher_(std::make_shared<process_launcher>(process_launcher_args{
        spawner,
        [this]() -> expected<unique_fd> { return endpoint_->new_connection(); },
        {},
        {}})) {}

  node_agent(const node_agent&) = delete;
  node_agent& operator=(const node_agent&) = delete;

  ~node_agent() {
    if (redialer_)
      redialer_->stop();
    // The actor system waits for the connection when it ends, which a driver
    // that a signal has stopped does not close.
    if (is_unanswered_)
      cut_off(system_, group_.node());
    caf::anon_send_exit(pulse_, caf::exit_reason::kill);
    pulse_ = nullptr;
    caf::anon_send_exit(agent_, caf::exit_reason::kill);
    agent_ = nullptr;
    group_ = nullptr;
    system_.await_all_actors_done();
    endpoint_.reset();
  }

  /// Joins the run at the other side of *driver*, unless the descriptor *stop*
  /// becomes readable before.
  expected<void> join(found_driver driver, int stop);

  /// The driver learns that this host is about to leave: it lets ranks save
  /// what they have, and then this agent go.
  void give_notice(std::string reason,
                   std::optional<std::chrono::milliseconds> grace) {
    host_notice notice{node_rank_, incarnation_, std::move(reason)};
    if (grace)
      notice.grace_ms = grace->count();
    send_anonymous(group_, std::move(notice));
  }

  const std::shared_ptr<agent_ending>& ending() const { return ending_; }

private:
  /// Without a limit, as in `agent_pulse`: the end of the connection to the
  /// driver ends the wait, or *stop*.
  template <class Answer, class... Message>
  expected<Answer> ask(int stop, Message... message);
  expected<void> find_place(const agent_facts& facts, int stop);
  expected<void> take_place(agent_facts facts, first_look& look, int stop);

  std::uint64_t launch_;
  note_function note_;
  std::uint32_t node_rank_ = 0;
  std::uint64_t incarnation_ = 0;
  system_config config_;
  caf::actor_system system_;
  std::shared_ptr<agent_ending> ending_ = std::make_shared<agent_ending>();
  /// It was refused a place, and is to ask again.
  std::shared_ptr<const wake_event> called_ =
    std::make_shared<const wake_event>();
  std::optional<private_endpoint> endpoint_;
  std::shared_ptr<process_launcher> launcher_;
  host_agent_actor agent_;
  agent_pulse_actor pulse_;
  worker_group_actor group_;
  std::shared_ptr<driver_redialer> redialer_;
  /// Time that it has waited for answers.
  std::chrono::steady_clock::duration asked_for_{0};
  bool is_unanswered_ = false; ///< It has left before an answer came.
};

/// An answer that an actor gets and a thread waits for.
template <class Answer>
class coming_answer {
public:
  explicit operator bool() const noexcept { return static_cast<bool>(came_); }

  void set(expected<Answer> x) {
    std::lock_guard guard{mutex_};
    answer_.emplace(std::move(x));
    came_.notify();
  }

  std::optional<expected<Answer>> take() {
    std::lock_guard guard{mutex_};
    return std::exchange(answer_, std::nullopt);
  }

  /// Readable once it is there.
  int fd() const noexcept { return came_.fd(); }

private:
  std::mutex mutex_;
  std::optional<expected<Answer>> answer_;
  wake_event came_;
};

tl::unexpected<error> left_early() {
  return failure(ec::stopped, "it was to end before it had a place");
}

template <class Answer, class... Message>
expected<Answer> node_agent::ask(int stop, Message... message) {
  using clock = std::chrono::steady_clock;
  auto coming = std::make_shared<coming_answer<Answer>>();
  if (!*coming)
    return system_failure(ec::spawn, "the agent needs a descriptor");
  auto begin = clock::now();
  auto failed = [coming](const caf::error& reason) {
    auto why = from_caf(reason);
    if (!is_ours(reason))
      why.code = ec::stopped; // The driver has ended, or cannot be reached.
    coming->set(tl::unexpected{std::move(why)});
  };
  auto asker = system_.spawn([=, group = group_](caf::event_based_actor* self) {
    auto sent = request(self, group, caf::infinite, message...);
    if constexpr (std::is_void_v<Answer>)
      std::move(sent).then([coming] { coming->set(expected<void>{}); }, failed);
    else
      std::move(sent).then([coming](Answer& x) { coming->set(std::move(x)); },
                           failed);
  });
  pollfd sources[] = {
    {coming->fd(), POLLIN, 0}, {ending_->fd(), POLLIN, 0}, {stop, POLLIN, 0}};
  wait_until_ready(sources, clock::time_point::max());
  asked_for_ += clock::now() - begin;
  if (auto answer = coming->take())
    return std::move(*answer);
  caf::anon_send_exit(asker, caf::exit_reason::kill);
  is_unanswered_ = true;
  return left_early();
}

expected<void> node_agent::take_place(agent_facts facts, first_look& look,
                                      int stop) {
  facts.clock_ms = unix_ms(std::chrono::system_clock::now());
  TROUPE_TRY(auto accepted, ask<host_accepted>(
                              stop, agent_hello{facts},
                              caf::actor_cast<caf::strong_actor_ptr>(agent_)));
  auto checked = check_host(accepted, facts.incarnation, look);
  TROUPE_TRY_VOID(ask<void>(stop, checked));
  if (checked.problem)
    return tl::unexpected{checked.problem};
  node_rank_ = accepted.node_rank;
  incarnation_ = facts.incarnation;
  redialer_->wait_for(std::chrono::milliseconds{accepted.lost_after_ms});
  agent_pulse_args pulse{group_, node_rank_, incarnation_};
  pulse.refused = [ending = ending_](const error& reason) {
    ending->end({agent_exit::try_again, reason.message});
  };
  pulse_ = spawn_on_network_thread(system_, agent_pulse, std::move(pulse));
  return {};
}

// All places are taken while the driver does not know yet that this host has
// lost its power, and come back. An attempt that begins while this host is
// checked has another token.
expected<void> node_agent::find_place(const agent_facts& facts, int stop) {
  auto deadline = std::chrono::steady_clock::now() + join_patience;
  auto is_waiting = false;
  pollfd sources[] = {
    {ending_->fd(), POLLIN, 0}, {stop, POLLIN, 0}, {called_->fd(), POLLIN, 0}};
  for (first_look look;;) {
    called_->clear();
    auto taken = take_place(facts, look, stop);
    // Not counted: a signal may have stopped the driver.
    if (taken || !asks_again(taken.error())
        || std::chrono::steady_clock::now() - asked_for_ >= deadline)
      return taken;
    if (!std::exchange(is_waiting, true))
      note_(concat("waits up to ", duration_text(join_patience),
                   " for a place: ", taken.error().message));
    ::poll(sources, 3, static_cast<int>(place_interval.count()));
    if (sources[0].revents != 0 || sources[1].revents != 0)
      return left_early();
  }
}

expected<void> node_agent::join(found_driver driver, int stop) {
  agent_ = spawn_on_network_thread(
    system_, host_agent,
    host_agent_args{launcher_, [called = called_] { called->notify(); }});
  TROUPE_TRY(auto endpoint, open_private_endpoint(system_, agent_, {}));
  endpoint_.emplace(std::move(endpoint));
  auto& found = driver.channel;
  redialer_ = std::make_shared<driver_redialer>(driver);
  TROUPE_TRY(group_,
             connect<worker_group_actor>(
               system_, redialer_->make_link(std::move(found.channel))));
  end_with(group_, ending_, "the connection to the driver ended");
  end_with(agent_, ending_, "the agent has ended");
  auto facts = own_agent_facts();
  facts.address = std::move(found.own_end);
  facts.driver_address = std::move(found.other_end);
  facts.launch = launch_;
  TROUPE_TRY_VOID(find_place(facts, stop));
  note_(concat("has joined the run as host ", node_rank_));
  return {};
}

/// Waits until the driver or a signal ends this agent. After a signal that
/// announces a preemption, the run gets its grace, and the signal is the reason
/// of whatever end comes; after another one it does not.
agent_end await_end(node_agent& agent, const interrupt_watch& signals) {
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
                const interrupt_watch& signals)
    : orders_(orders), spawner_(spawner), signals_(signals),
      note_(notes_of(orders)), leave_(signals, orders.launch != 0) {}

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
    node_agent agent{spawner_, orders_.launch, note_};
    auto joined = agent.join(std::move(driver), leave_.fd());
    if (joined)
      return {await_end(agent, signals_), true, false};
    if (auto early = agent.ending()->first())
      return {*early, false, false};
    return {failed_end(joined.error()), false,
            joined.error().code == ec::timeout};
  }

  agent_end serve_first() {
    note_(search_text(orders_));
    auto deadline = std::chrono::steady_clock::now() + join_patience;
    for (;;) {
      auto found = find(search_patience);
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
    for (;;) {
      wait_until_ready(leave_.fd(), POLLIN,
                       std::chrono::steady_clock::now() + run_pause);
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
    }
  }

  const agent_orders& orders_;
  spawner_connection* spawner_;
  const interrupt_watch& signals_;
  note_function note_;
  leave_request leave_;
};

agent_end serve(const agent_orders& orders, const interrupt_watch& signals) {
  auto spawns = spawner();
  if (!spawns)
    return failed_end(spawns.error());
  return agent_service{orders, *spawns, signals}.serve();
}

} // namespace

agent_outcome run_node_agent(const agent_orders& orders) {
  agent_end end;
  auto has_to_leave = false;
  try {
    interrupt_watch signals{default_preempt_signals()};
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
