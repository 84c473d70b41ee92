#include "troupe/trainers/run_membership.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <type_traits>

#include <caf/event_based_actor.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

/// When the storage first showed another attempt than that of a token.
class first_look {
public:
  /// Notes that it still does. Returns whether the limit has passed: not if it
  /// was not looked at for a while.
  bool is_over(std::uint64_t token) {
    auto now = std::chrono::steady_clock::now();
    if (token_ != token || now - last_ > patience / 2)
      since_ = now;
    last_ = now;
    token_ = token;
    return now - since_ >= patience;
  }

private:
  /// How long the storage may show another attempt than the one that the driver
  /// names again and again, because the host reads files late.
  static constexpr auto patience = std::chrono::seconds{10};

  std::optional<std::uint64_t> token_;
  std::chrono::steady_clock::time_point since_;
  std::chrono::steady_clock::time_point last_;
};

namespace {

/// How often an agent asks for a place, unless the driver calls it: what its
/// host sees of the storage may change.
constexpr auto place_interval = std::chrono::milliseconds{500};

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

// -- what it asks the driver

tl::unexpected<error> left_early() {
  return failure(ec::stopped, "it was to end before it had a place");
}

} // namespace

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

void warning_path::open(worker_group_actor group, std::uint32_t node_rank,
                        std::uint64_t incarnation) {
  std::lock_guard guard{mutex_};
  group_ = std::move(group);
  node_rank_ = node_rank;
  incarnation_ = incarnation;
}

void warning_path::close() {
  std::lock_guard guard{mutex_};
  group_ = nullptr;
}

void warning_path::pass_on(std::string text) {
  std::lock_guard guard{mutex_};
  if (group_)
    send_anonymous(group_,
                   host_warning{node_rank_, incarnation_, std::move(text)});
}

run_membership::run_membership(spawner_connection* spawner,
                               std::uint64_t launch, note_function note,
                               std::shared_ptr<const inheritance> inherited)
  : launch_(launch), note_(std::move(note)), system_(config_),
    launcher_(std::make_shared<process_launcher>(process_launcher_args{
      spawner,
      [this]() -> expected<unique_fd> { return endpoint_->new_connection(); },
      {},
      {},
      {},
      std::move(inherited)})) {}

run_membership::~run_membership() {
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
  warnings_->close();
  group_ = nullptr;
  system_.await_all_actors_done();
  endpoint_.reset();
}

void run_membership::give_notice(
  std::string reason, std::optional<std::chrono::milliseconds> grace) {
  host_notice notice{node_rank_, incarnation_, std::move(reason)};
  if (grace)
    notice.grace_ms = grace->count();
  send_anonymous(group_, std::move(notice));
}

template <class Answer, class... Message>
expected<Answer> run_membership::ask(int stop, Message... message) {
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

expected<void> run_membership::take_place(agent_facts facts, first_look& look,
                                          int stop) {
  facts.clock_ms = unix_ms(std::chrono::system_clock::now());
  facts.gpus = static_cast<int>(local_resources().gpus);
  TROUPE_TRY(auto accepted, ask<host_accepted>(
                              stop, agent_hello{facts},
                              caf::actor_cast<caf::strong_actor_ptr>(agent_)));
  // Its ranks may start before the answer to the next message is here.
  warnings_->open(group_, accepted.node_rank, facts.incarnation);
  auto checked = check_host(accepted, facts.incarnation, look);
  TROUPE_TRY_VOID(ask<void>(stop, checked));
  if (checked.problem)
    return tl::unexpected{checked.problem};
  node_rank_ = accepted.node_rank;
  incarnation_ = facts.incarnation;
  preempt_signals_ = std::move(accepted.preempt_signals);
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
// checked has another token. GPUs may show late after a boot.
expected<void> run_membership::find_place(const agent_facts& facts, int stop) {
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

expected<void> run_membership::join(found_driver driver, int stop) {
  agent_ = spawn_on_network_thread(
    system_, host_agent,
    host_agent_args{launcher_, [called = called_] { called->notify(); }});
  TROUPE_TRY(auto endpoint,
             open_private_endpoint(system_, agent_,
                                   [warnings = warnings_](std::string text) {
                                     warnings->pass_on(std::move(text));
                                   }));
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

} // namespace troupe::internal
