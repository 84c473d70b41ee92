#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/agent_facts.hpp"
#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

/// What the driver knows about a host.
enum class host_state : std::uint8_t {
  expected,   ///< Has no agent yet: is launched later, or comes by itself.
  launching,  ///< Its launcher does not have the ticket yet.
  connecting, ///< Launched; its agent has not said hello.
  ready,      ///< Its agent waits for an attempt.
  serving,    ///< Runs ranks of the current attempt.
  suspect,    ///< Does not answer; may come back.
  lost,       ///< Its agent is gone: is launched again later, or comes back.
  given_up,   ///< Is not launched again, or much later.
  draining,   ///< Is about to leave, for example to be preempted.
  left,
};

/// The limits of `host_states`.
struct host_limits {
  using duration = std::chrono::milliseconds;

  /// From the first launch until all hosts are ready; also how long one launch
  /// may take.
  duration join{120'000};

  /// A host that is silent for this long is lost.
  duration lost_after{10'000};

  duration tick{1000}; ///< From one sign of a host to the next.

  /// A host that is silent for this long is suspect.
  duration suspect_after{3000};

  /// Launches of a host in a row, after the first one; -1: no limit.
  int max_relaunches = 10;

  /// Fewest ranks for which the hosts of an attempt need slots; 0: all hosts
  /// that are planned to have ranks are needed.
  int min_ranks = 0;

  /// Hosts that were not planned may come while those that are here have room
  /// for fewer ranks; 0: none may.
  int max_ranks = 0;

  /// Ranks on each host of an attempt that has any; 0: any number.
  int per_host = 0;

  rank_claim claim; ///< A host has room for ranks as far as it holds theirs.

  /// GPUs that ranks of a host see, if their agent sees more.
  int shown_gpus = std::numeric_limits<int>::max();
};

/// Launch an agent on *host*. Its launcher is called *launch* in events. First
/// launches are numbered from 1 on in the order of their hosts, and others
/// later: they can be prepared before anything is decided.
struct launch_agent {
  std::size_t host = 0;
  std::uint64_t launch = 0;
};

/// End the launcher *launch*; its agent is lost, or did not come in time.
struct end_launcher {
  std::size_t host = 0;
  std::uint64_t launch = 0;
};

/// Tell this agent to leave and drop its connection, if it has one. Nothing of
/// it counts any more.
struct fence_agent {
  std::size_t host = 0;
  std::uint64_t incarnation = 0;
};

/// The agent of *host* is silent; it may come back.
struct host_suspected {
  std::size_t host = 0;
  host_limits::duration silence{0};
};

/// The agent of *host* was silent, and answers again.
struct host_answers {
  std::size_t host = 0;
};

/// The agent of *host* is gone, and with it its ranks.
struct host_lost {
  std::size_t host = 0;
  std::string cause;
  bool was_draining = false; ///< It had said that it would go.
  /// When it was alive for the last time, as far as that is known.
  std::chrono::steady_clock::time_point last_sign{};
};

/// No agent is launched on *host* any more, or not for *pause*.
struct host_given_up {
  std::size_t host = 0;
  std::string cause;
  host_limits::duration pause{0}; ///< 0: for good.
};

/// Ranks of an attempt could not start on *host*, or failed there before a
/// report: it gets none for *pause*.
struct host_left_out {
  std::size_t host = 0;
  host_limits::duration pause{0};
};

/// Start an attempt with *hosts*, in order.
struct start_with_hosts {
  std::vector<std::size_t> hosts;
};

/// Too few hosts have come; *reason* has a line for each that is missing.
struct too_few_hosts {
  error reason;
};

using host_decision =
  std::variant<launch_agent, end_launcher, fence_agent, host_suspected,
               host_answers, host_lost, host_given_up, host_left_out,
               start_with_hosts, too_few_hosts>;

using host_decisions = std::vector<host_decision>;

/// A host of a run, and all that is known about it. Its ranks in an attempt are
/// numbered one after the other.
struct run_host {
  using time_point = std::chrono::steady_clock::time_point;

  std::string name;        ///< In messages.
  bool is_launched = true; ///< By this driver; else its agent comes by itself.
  /// For ranks of an elastic run's attempts, as far as its agent holds what
  /// they claim.
  host_room room{1, {}};
  int planned = 1; ///< The same as far as it was planned; 0: it gets none.
  int first_rank = 0;
  int ranks = 0;
  bool is_extra = false; ///< It was not planned: it is here for a guest.

  // -- its agent
  /// The incarnation of the agent that has the host: that checks it or is here.
  /// Unset if no agent has it.
  std::optional<std::uint64_t> incarnation;
  bool is_named = false;      ///< By an agent.
  bool is_guest = false;      ///< Its agent was not launched by this driver.
  std::string own_name;       ///< As its agent calls it.
  std::string boot;           ///< As in `agent_facts`.
  std::string address;        ///< As in `rank_facts::host_address`.
  std::string driver_address; ///< The other end of that connection.
  time_point admitted{};      ///< Its agent checks it since then.
  /// Why that cannot use its storage, which may pass.
  std::string problem;
  /// Agents of its machine that ask again, since they have less room than there
  /// was or it may be free soon, by incarnation: since when.
  std::map<std::uint64_t, time_point> asked_since;

  // -- its state
  host_state state = host_state::expected;
  host_state before = host_state::ready; ///< State before it became suspect.
  bool was_here = false;    ///< An agent has checked it: it suits the run.
  bool has_trained = false; ///< Its agent's ranks had a part in a report.
  time_point heard{};       ///< A standstill of the driver moves it.
  time_point answered{};    ///< Its latest sign was handled.
  time_point last_sign{};   ///< As in `host_lost`.
  int failures_in_a_row = 0;
  int give_ups = 0;                 ///< Since it last made progress.
  time_point gone_at{};             ///< It may be back after that.
  std::string reason;               ///< Why it is missing.
  std::deque<std::uint64_t> fenced; ///< Incarnations that do not count.
  /// Its agent gets no ranks until then: see `host_left_out`.
  std::optional<time_point> left_out_until;
  int failed_starts = 0; ///< Since it last made progress.

  // -- launches of its agent
  std::uint64_t first_launch = 0; ///< Its number, as in `launch_agent`.
  std::uint64_t launch = 0;       ///< The latest one; 0: there was none.
  bool has_launcher = false;      ///< That of the latest launch has not ended.
  int launches = 0; ///< The one that made progress last is the first.
  time_point launched{};
  /// By the launcher of the latest launch; once its agent is here, why the
  /// launcher has ended since the last sign of that.
  std::string said;
  std::optional<time_point> next_launch;

  /// Whether its agent has checked it and counts.
  bool is_here() const noexcept;

  /// Whether ranks of the attempt under way are its agent's, which may be
  /// silent or about to leave.
  bool serves() const noexcept;
};

/// Has the hosts of a run, and decides about them: when agents are launched,
/// when a host is lost, and when there are enough hosts for an attempt. Uses no
/// process and no clock: events come with their time, and what follows is
/// returned.
///
/// An agent names itself by a random number, its incarnation. A host has one
/// agent at a time.
///
/// Invariants (the tests cite them by name):
///   HS-1  An incarnation that was fenced or lost never counts again.
///   HS-2  A host is launched only while it has no agent and no launch.
///   HS-3  A host is launched at most `max_relaunches` + 1 times, or as often
///         again since it last made progress; in an elastic run, once more
///         after each of `late_launch_delay`; in any other, as often as there
///         is time while `gather` waits for a host that was never here, which
///         does not count once it is.
///   HS-4  `gather` is answered once, by a start or by a failure.
///   HS-5  A host is left out only if the others are enough for an attempt, and
///         never the driver's own. `gather` does not fail as long as one is.
///   HS-6  For loops that failed, a host is left out only if none of its
///         agent's ranks had a part in a report, and ranks of another host of
///         the attempt had.
class host_states {
public:
  using duration = host_limits::duration;
  using time_point = std::chrono::steady_clock::time_point;

  /// Before a launch is repeated.
  static constexpr retry_delay launch_delay{duration{1000}, duration{60'000}};

  /// Before a host that was given up is launched again, if the run can do
  /// without it: one that is repaired after hours is used again.
  static constexpr retry_delay late_launch_delay{duration{600'000},
                                                 duration{3'600'000}};

  /// Before a host that was left out gets ranks again, unless ten times the
  /// failed attempt is longer: trials cost little of the run.
  static constexpr retry_delay left_out_delay{duration{60'000},
                                              duration{3'600'000}};

  /// How long an agent of a host that has been here may lack a part of its
  /// room.
  static constexpr duration late_room{30'000};

  /// *addresses* are those of the driver, for messages.
  host_states(std::vector<run_host> hosts, host_limits limits,
              std::string addresses, random_function random);

  /// Launches what can be launched, and starts an attempt once all planned
  /// hosts are ready, or after *limit* with enough of them. If *at_once*, it
  /// starts as soon as there are enough. Guests are waited for only if there
  /// are too few.
  host_decisions gather(time_point now, duration limit, bool at_once = false);

  /// The launcher has the ticket.
  host_decisions on_launched(std::size_t host, std::uint64_t launch,
                             time_point now);

  /// The launcher has *said* this, and waits for something: it is why its agent
  /// does not connect.
  void on_launcher_said(std::size_t host, std::uint64_t launch,
                        std::string said);

  /// The launcher ended, or could not start; *reason* says why. Another launch
  /// *may_help*, unless the launcher or the agent has said the contrary, and
  /// also then if the host was here before: one that has just booted may miss
  /// folders, keys and programs. If an agent that is here gives no sign after
  /// that, *reason* is a part of why it is lost.
  host_decisions on_launcher_ended(std::size_t host, std::uint64_t launch,
                                   std::string reason, bool may_help,
                                   time_point now);

  /// The agent *x* has *host*, and checks it; that has *room*. *is_guest*:
  /// someone else has started it.
  void admit(std::size_t host, const agent_facts& x, bool is_guest,
             host_room room, time_point now);

  /// The agent of *host*, which is not here, leaves it to another one.
  void release(std::size_t host) { hosts_[host].incarnation.reset(); }

  /// It has found this *problem* there, and asks for a place again.
  void on_problem(std::size_t host, const std::string& problem) {
    hosts_[host].problem = problem;
  }

  /// Whether *host*, which has been here, has less *room* than then, and its
  /// agent *incarnation* has not said so for `late_room`: it may have just
  /// booted.
  bool may_have_more(std::size_t host, std::uint64_t incarnation,
                     const host_room& room, time_point now);

  /// Whether the agent *incarnation* of the same machine may have *host* soon:
  /// that which has it is about to leave, or may be gone, which is known once
  /// the other one has asked for *loss_limit*.
  bool may_be_free_soon(std::size_t host, std::uint64_t incarnation,
                        duration loss_limit, time_point now);

  /// The agent *incarnation* of *host* has checked it: it is here. A launch of
  /// this driver there ends if it is a guest.
  host_decisions on_hello(std::size_t host, std::uint64_t incarnation,
                          time_point now);

  /// One more host, which was not planned; its agent comes by itself.
  void add_guest(int slots);

  /// The hello of an agent cannot be accepted, and another launch would not
  /// help: it is of another build, or cannot write to the storage. A host that
  /// is not launched by this driver may still get another agent.
  host_decisions on_refused(std::size_t host, std::string cause,
                            time_point now);

  /// Any sign of the agent.
  host_decisions on_tick(std::size_t host, std::uint64_t incarnation,
                         time_point now);

  /// The agent is gone for good: it does not connect again.
  host_decisions on_gone(std::size_t host, std::uint64_t incarnation,
                         std::string cause, time_point now);

  /// The agent was notified that its host is about to go, and will be gone
  /// after *grace*. It leaves once it serves no attempt, and is launched again
  /// once it may be back.
  host_decisions on_draining(std::size_t host, std::uint64_t incarnation,
                             duration grace, time_point now);

  /// An attempt runs on *hosts*.
  void on_attempt_started(const std::vector<std::size_t>& hosts);
  /// Hosts that were about to go leave.
  host_decisions on_attempt_ended(time_point now);

  /// The attempt under way, which has *begun* then, did not come up, since its
  /// ranks on *failed* hosts could not start. Those that have the same agent
  /// are left out for a while, or until they have another one. Nothing follows
  /// if the other hosts are too few, or if the driver's own has failed: what
  /// fails there may fail everywhere.
  host_decisions on_start_failed(std::set<std::size_t> failed, time_point begun,
                                 time_point now);

  /// The loops of its ranks on *failed* hosts have failed, and no others. The
  /// same follows if these hosts are new, and the program is known to run on
  /// another one.
  host_decisions on_loops_failed(std::set<std::size_t> failed, time_point begun,
                                 time_point now);

  /// A report was stored: the next failure of a serving host is a new one, and
  /// it may be launched again as often as at first. Its loops work.
  void on_progress() noexcept;

  /// The ranks of the next attempt, one entry per host.
  void deal(const std::vector<host_share>& shares);

  void set_address(std::size_t host, std::string address) {
    hosts_[host].address = std::move(address);
  }

  /// What follows from the time alone. To be called after `next_check`. A call
  /// that comes much later means that this process was stopped: that time does
  /// not count.
  host_decisions check(time_point now);

  /// Time until the next call of `check`, which is never more than a tick.
  duration next_check() const noexcept { return limits_.tick; }

  const std::vector<run_host>& hosts() const noexcept { return hosts_; }

  /// How long a message that is handled *now* may have waited for this process,
  /// which stood still: the longest time, also if it stood still again within a
  /// minute; 0 a minute after the last time.
  duration standstill_before(time_point now) const noexcept;

  /// The hosts that an attempt could use now.
  std::vector<std::size_t> usable() const;

private:
  static constexpr std::size_t max_fenced = 64;

  /// How long a busy machine may need for what came in a standstill.
  static constexpr duration standstill_memory{60'000};

  /// What a host that is suspect was before.
  static host_state& state_behind(run_host& x) {
    return x.state == host_state::suspect ? x.before : x.state;
  }

  /// Whether it may get an agent, or answer again.
  static bool is_coming(const run_host& x);

  void launch(std::size_t host, time_point now, host_decisions& out);
  void let_go(std::size_t host, time_point now, host_decisions& out);
  void launch_failed(std::size_t host, std::string reason, bool may_help,
                     time_point now, host_decisions& out);
  void lose(std::size_t host, std::string cause, time_point now,
            host_decisions& out);
  void plan_launch(std::size_t host, bool may_help, time_point now,
                   host_decisions& out);
  void give_up(std::size_t host, time_point now, host_decisions& out);
  void fence(std::size_t host, host_decisions& out);
  void drop_launcher(std::size_t host, host_decisions& out);
  void check_host(std::size_t host, time_point now, host_decisions& out);
  void end_long_checks(time_point now, host_decisions& out);
  void decide(time_point now, host_decisions& out);
  /// Returns whether hosts were left out.
  bool take_back_left_out();
  void skip_standstill(time_point now);
  /// How long the agent *incarnation*, which asks again, has asked for *host*.
  duration time_asked(std::size_t host, std::uint64_t incarnation,
                      time_point now);
  duration delay_after(int failures);
  std::string missing_text(const run_host& x) const;
  /// *waited*: set if that took too long.
  error missing_error(const std::vector<std::size_t>& usable,
                      std::optional<duration> waited) const;
  /// How much longer than others hosts are waited for that are not gone yet.
  duration time_for_leavers() const;
  /// Whether *hosts* make an attempt.
  bool are_enough(const std::vector<std::size_t>& hosts) const;
  /// How many of *hosts*, or of all, are planned to have ranks.
  std::size_t planned_among(const std::vector<std::size_t>& hosts) const;
  std::size_t planned_hosts() const;

  std::vector<run_host> hosts_;
  host_limits limits_;
  std::string addresses_;
  random_function random_;
  std::uint64_t launches_ = 0;
  std::optional<time_point> gather_until_;
  duration gather_limit_{0};
  bool starts_at_once_ = false;
  std::optional<time_point> checked_;
  duration stopped_{0};        ///< The longest of the latest standstills, ...
  time_point stopped_until_{}; ///< ... which were over by then.
  time_point::duration stopped_in_attempt_{0}; ///< The latest one.
};

} // namespace troupe::internal
