#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <caf/actor_control_block.hpp>
#include <caf/result.hpp>
#include <caf/system_messages.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/host_agents.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/worker_group_args.hpp"
#include "troupe/runtime/hosts/host_roster.hpp"
#include "troupe/runtime/hosts/resize_judge.hpp"

namespace troupe::internal {

/// What follows for attempts from what is decided about hosts.
struct host_effects {
  /// The attempt that waits for hosts starts with these.
  std::function<void(const start_with_hosts&)> start;
  std::function<void(const too_few_hosts&)> give_up;
  /// The ranks of a host are lost; *why* is that in a sentence. Returns whether
  /// one of them has failed for that.
  std::function<bool(const host_lost&, const std::string& why)> lose;
};

/// The hosts of a run, as its worker group looks after them: takes in agents,
/// has them launched, finds those that are silent, and says what becomes of
/// hosts. `host_roster` decides.
class group_hosts {
public:
  using time_point = host_roster::time_point;

  /// How long a host may take to say what its ranks show.
  static constexpr auto look_patience = std::chrono::seconds{5};

  /// Of the worker group *self*. *args* must outlive this.
  group_hosts(worker_group_actor::pointer self, const worker_group_args& args,
              host_roster roster, host_effects effects);

  group_hosts(const group_hosts&) = delete;
  group_hosts& operator=(const group_hosts&) = delete;

  // -- agents and their launchers, as their messages come

  caf::result<host_accepted> welcome(agent_hello& x,
                                     const caf::strong_actor_ptr& agent);
  caf::result<void> take_in(const host_checked& x);
  caf::result<void> take_in(const host_tick& x);
  void note_warning(const host_warning& x) const;
  void note_launch(const agent_launched& x);
  void note_launcher(const launcher_said& x);
  void note_launcher(const launcher_ended& x);

  // -- attempts

  /// An attempt is to start, if *at_once* with the hosts that are left:
  /// `host_effects::start` or `give_up` follows.
  void gather(bool at_once);
  /// The attempt is not there yet: says which hosts it waits for.
  void note_missing() const;
  /// A place may be free: agents that were refused ask again.
  void offer_places() { agents_.offer_places(); }
  /// It begins on *chosen* hosts, which an elastic run shares its ranks among.
  void begin_attempt(const std::vector<std::size_t>& chosen);
  /// It is over: hosts that were about to leave are let go.
  void end_attempt();
  /// A report is stored.
  void progressed() noexcept { roster_.progressed(); }
  /// The same. Why ranks are to leave, so that the next attempt has more of
  /// them; nothing: they stay.
  std::optional<std::string> resize_reason(bool has_checkpoint) const {
    return resizes_.reported(has_checkpoint);
  }
  /// *host* is about to leave, and will be gone after *grace*.
  void drain(std::size_t host, std::uint64_t incarnation,
             std::chrono::milliseconds grace);
  /// The next attempts do without *failed* hosts, on which ranks of *attempt*
  /// could not start since *begun*, or on which loops (*have_begun*) fail that
  /// work elsewhere, if they can. Returns the names of these hosts.
  std::string leave_out(std::set<std::size_t> failed, std::uint64_t attempt,
                        time_point begun, bool have_begun);
  /// The run takes no more hosts.
  void close() noexcept { is_closed_ = true; }

  // -- which ranks and which agent each has

  const host_roster& roster() const noexcept { return roster_; }
  bool has_ranks(std::size_t host) const { return roster_.at(host).ranks > 0; }
  /// Whether *rank* is on another host than the driver's.
  bool is_elsewhere(int rank) const { return roster_.host_with(rank) != 0; }
  const std::string& name_of(int rank) const {
    return roster_.name(roster_.host_with(rank));
  }
  /// Invalid if there is none.
  host_agent_actor agent_at(std::size_t host) const { return agents_.at(host); }
  host_agent_actor agent_of(int rank) const {
    return agents_.at(roster_.host_with(rank));
  }
  /// Sends *x* to the agents of hosts with ranks, to that of the driver's host
  /// last. On every report's way: makes no list of them.
  template <class Message>
  void tell(Message x) {
    for (auto& [host, agent] : agents_.by_host())
      if (host > 0 && has_ranks(host))
        send(self_, agent, x);
    if (has_ranks(0))
      send(self_, agents_.at(0), std::move(x));
  }
  /// Asks the same agents. Calls *learn* with each answer, and *done* once each
  /// has answered, or has not for `look_patience`: at once if there are none. A
  /// spare host that is frozen delays nothing.
  template <class Answer, class Question, class Learn>
  void ask(const Question& question, Learn learn, std::function<void()> done) {
    auto agents = agents_of_ranks();
    if (agents.empty())
      return done();
    auto one_less = [left = std::make_shared<std::size_t>(agents.size()),
                     done = std::move(done)] {
      if (--*left == 0)
        done();
    };
    for (auto& agent : agents)
      request(self_, agent, look_patience, question)
        .then(
          [learn, one_less](Answer& x) {
            learn(x);
            one_less();
          },
          [one_less](const caf::error&) { one_less(); });
  }
  /// The token that ranks join the attempt with; 0: there is none.
  std::uint64_t token() const { return args_.token ? args_.token() : 0; }
  /// Shows a line about hosts.
  void note(std::string text) const;

private:
  std::vector<host_agent_actor> agents_of_ranks() const;
  time_point now() const { return self_->clock().now(); }
  void journal(std::string_view kind, metrics fields) const;
  /// An agent is gone, and its ranks with it. The group ends with that of the
  /// driver's host.
  void agent_lost(const caf::down_msg& x);
  /// Looks once a second which hosts are silent, whom to launch again, and
  /// whether the attempt that waits for hosts may start.
  void watch();
  /// Hosts have come or gone: how many ranks the next attempt could have.
  void note_room();
  void carry_out(const host_decisions& decisions);
  void drop_agent(const fence_agent& x);
  void show(const host_suspected& x);
  void show(const host_answers& x);
  void show(const host_given_up& x);
  void lose(const host_lost& x);

  worker_group_actor::pointer self_;
  const worker_group_args& args_;
  host_roster roster_;
  host_effects effects_;
  host_agents agents_;
  resize_judge resizes_;
  bool is_closed_ = false;
};

} // namespace troupe::internal
