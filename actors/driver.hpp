#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "troupe/actors/callback_chain.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/run/batch_queue.hpp"
#include "troupe/runtime/run/follower_window.hpp"
#include "troupe/runtime/run/leave_deadline.hpp"
#include "troupe/runtime/run/run_ending.hpp"
#include "troupe/runtime/run/run_monitor.hpp"
#include "troupe/runtime/run/run_state_machine.hpp"
#include "troupe/runtime/run/stop_judge.hpp"
#include "troupe/runtime/store/callback_cursor.hpp"
#include "troupe/runtime/store/run_store.hpp"
#include "troupe/runtime/values/run_context.hpp"

namespace troupe::internal {

struct resource_share;

/// What stays as it is until the run ends.
struct driver_args {
  std::shared_ptr<run_store> store;
  std::shared_ptr<run_monitor> monitor;
  worker_group_actor group;
  committer_actor committer;
  std::shared_ptr<callback_cursor> cursor; ///< Set if the run has callbacks.
  run_context context; ///< What callbacks learn about the run.
  failure_config failure;
  stop_config stop;
  attempt_start first; ///< Begun already, so that a start costs no extra write.
  bool has_logs = false; ///< Ranks are processes, whose output is kept.
  bool is_trial = false; ///< See `run_surroundings`.
  std::chrono::milliseconds stop_timeout{0};
  std::chrono::milliseconds stop_grace{0};
  /// Longest grace, whatever was asked for.
  std::chrono::milliseconds longest_grace{0};
  /// What the run has of this host, until no rank is left for good.
  std::shared_ptr<const resource_share> resources;
};

/// What the driver begins with and changes as the run goes. Separate, so that
/// `driver_state::args` keeps no stale copy.
struct driver_start {
  run_observer_actor callbacks; ///< Invalid: the run has none.
  std::size_t callback_queue = 64;
  int world_size = 1; ///< As planned: hosts may be missing, guests may come.
  /// Asked about each report once it is stored; see `run_surroundings`.
  stop_judge::report_judge enough;
};

/// What the DRIVER remembers between messages.
struct driver_state {
  static inline constexpr auto name = "driver";

  using pointer = driver_actor::stateful_pointer<driver_state>;
  using clock = std::chrono::steady_clock;
  using commit_promise = caf::typed_response_promise<report_committed>;

  /// A batch on its way to storage, in order of index.
  struct pending_batch {
    commit_batch message;
    commit_promise promise;
    clock::time_point commit_begin; ///< If it has a checkpoint.
  };

  /// An actor that follows the run. Only the end waits for it, briefly.
  struct follower {
    run_observer_actor actor;
    follower_window window;
  };

  /// How long the end of the run waits for the followers' last answers.
  static constexpr auto followers_limit = std::chrono::seconds{2};

  void set_up(pointer own, driver_args given, driver_start start);
  void begin();
  void abort(const abort_run& x);
  void preempt(const preempt_run& x);
  void finish(const finish_run& x);
  void resize(const resize_callback_queue& x);
  void carry_out(const run_order& x);
  run_status status() const;
  /// The same without its last metrics.
  run_status shown_now() const;

  // -- facts about an attempt (driver_attempts.cpp)
  void started(const attempt_started& x);
  /// No rank is left: nothing of the attempt is taken any more.
  void close_group();
  void ended(const attempt_ended& x);
  void failed(attempt_failed& x);
  /// Applies the event that the end of an attempt leads to.
  void apply_end(const run_event& x);
  void group_lost(const error& reason);
  /// The group of *attempt* is gone: answers a stop that was under way.
  void group_gone(std::uint64_t attempt);

  void warned(const attempt_warning& x);
  void advanced(const epoch_advanced& x);
  /// One of the run's own actors is gone. Only a defect of Troupe can cause
  /// that.
  void lost(const caf::down_msg& x);
  void callbacks_lost(const error& reason);
  caf::result<report_committed> add(commit_batch& x);
  caf::result<void> log(const log_event& x);

  /// Does what the state machine decides on *event*.
  void apply(const run_event& event);
  void carry_out(const run_decision& decision);
  /// *event* came too late, or there is a defect. Notes it, once per kind.
  void refused(const run_event& event, const error& reason);
  void act(const run_action& action);
  void wait(const run_action& action);
  void preempt_group(const run_action& action);
  void start_group(const run_action& action);
  void show_store_events();
  void launch(const attempt_start& x);

  // -- the end (driver_ending.cpp)
  void end(const error& reason);
  run_error error_of(std::map<int, rank_failure> ranks) const;
  /// Whether the run ends because it was stopped or preempted.
  bool must_leave() const;
  /// Stores the end of the run once callbacks have received all reports,
  /// and quits once they have been notified of the end.
  void take_next_step();
  void store_end();
  void quit();
  /// Waiting callers get a result even if the driver dies. CAF ends the program
  /// if that throws.
  void leave_result_behind();

  // -- reports (driver_reports.cpp)
  /// Stores batches one after another; holds back while callbacks lag behind.
  void store_next();
  /// What the batch that is being stored needs besides the journal is durable,
  /// its checkpoint in *folder*.
  void stored(std::optional<std::string> folder);
  /// The commit under way succeeds or fails by itself.
  void refuse_batches(const error& reason);
  /// *batch* could not be stored: no later one is stored, and the run ends.
  void store_failed(pending_batch batch, const error& reason);
  /// Tells ranks to leave if the run ends with *batch* or has ended before.
  std::optional<stop_notice> judge(const report_batch& batch);
  /// The run has trained enough for *reason*: makes that durable.
  void store_stop(const std::string& reason);
  /// Does what waited for the commit that has just ended.
  void commit_over();

  /// Calls `before_run`, which comes before all else, also in a run that ends
  /// before it begins. Once.
  void introduce();
  /// Hands *message* to the callbacks, if there are any, and to followers.
  template <class Message>
  void call_back(Message message);
  /// No callback gets *report*.
  void skip_callbacks(std::uint64_t report);
  void called_back(const callback_done& x, std::optional<std::uint64_t> report);
  /// Takes note of an answer of callbacks, which may end the run.
  void note_answer(const callback_done& x);
  void note_callback_failure(const std::string& reason);
  void replay_pending();

  // -- followers of the run (driver_followers.cpp)
  caf::result<run_status> follow_from_now(run_observer_actor who);
  /// The run as callbacks know it at the start of *attempt*.
  run_context context_at(std::uint64_t attempt) const;
  /// The run has moved on: tells callbacks, and those that follow it. Takes no
  /// place in the queue of callbacks.
  void announce(const callback_event& x);
  void tell_followers(const callback_event& x);
  void tell(follower& x, const callback_event& what);
  /// How many answers of followers the end of the run waits for.
  std::size_t last_calls() const;
  /// Whether anyone receives events.
  bool has_listeners() const { return callbacks || !followers.empty(); }

  // -- messages to ranks (driver_mailboxes.cpp)
  caf::result<caf::actor> open(open_mailbox& x, postbox_actor& box);
  caf::result<ranks_changed> follow_ranks_from_now(rank_observer_actor who);
  /// Whether *who*, which is gone, was a mailbox or one that follows them.
  bool mailbox_lost(const caf::actor_addr& who);
  /// The ranks of the attempt are gone.
  void close_mailboxes();
  ranks_changed known_ranks() const;
  void announce_mailboxes();

  void show();
  void note_event(std::string_view kind, const metrics& fields);

  pointer self = nullptr;
  driver_args args;
  run_observer_actor callbacks; ///< Invalid: there are none, or no more.
  std::size_t callback_queue = 0;
  int world_size = 1; ///< Of an elastic run, that of the latest attempt.
  std::optional<run_state_machine> machine;
  std::optional<attempt_start> begun; ///< Reserved, not started yet.
  batch_queue<pending_batch> batches;
  bool group_alive = false;
  error refusal; ///< Of every batch, since one could not be stored.
  run_ending ending;
  stop_judge stops;
  std::optional<run_error> end_reason; ///< Unset: none, or not ended.
  /// Its group is gone; the machine receives that event once the commit under
  /// way ends.
  std::optional<std::uint64_t> gone_attempt;
  std::set<std::string_view> noted_refusals; ///< By names of events.
  /// If the next attempt has fewer ranks: how the last one ended.
  std::string fewer_ranks_for = "not all hosts have come";
  bool is_introduced = false; ///< Callbacks got `before_run`.
  std::size_t callbacks_under_way = 0;
  std::vector<follower> followers;
  std::map<int, caf::actor> mailboxes; ///< By rank, of this attempt.
  int mailboxes_expected = 0; ///< Its world size; 0: none has been opened.
  std::vector<rank_observer_actor> rank_observers;
  run_status shown;
  leave_deadline leave_by;
  clock::time_point start_time;
  clock::time_point begin_time; ///< The same by the actor's clock.
  std::optional<rate_meter> rate;
};

/// Behavior of the DRIVER actor. If it dies of a defect, the monitor gets a
/// result that says so, once the worker group has ended every rank.
driver_actor::behavior_type driver(driver_state::pointer self, driver_args args,
                                   driver_start start);

} // namespace troupe::internal
