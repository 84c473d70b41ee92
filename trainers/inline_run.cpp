#include "troupe/trainers/inline_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "troupe/callbacks/console.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/cut_text.hpp"
#include "troupe/runtime/process/redacted.hpp"
#include "troupe/runtime/run/failure_policy.hpp"
#include "troupe/runtime/run/make_result.hpp"
#include "troupe/trainers/context_of.hpp"
#include "troupe/trainers/inline_link.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe {

namespace {

/// How one attempt ended.
struct attempt_end {
  loop_outcome loop;
  error refusal; ///< What the store refused; the run ends with it.
};

attempt_end run_attempt(const train_loop& loop, std::vector<int> gpus,
                        run_store& store, inline_callbacks& callbacks,
                        const attempt_start& start, loop_control& control,
                        kept_contexts& kept) {
  callbacks.begin_attempt(start.attempt);
  callbacks.show_store_events();
  rank_facts facts;
  facts.run_name = callbacks.context().name;
  facts.run_path = callbacks.context().path;
  facts.run_inode = store.folder().files().inode();
  facts.run_id = store.description().id;
  facts.attempt = start.attempt;
  facts.first_report = start.first_report;
  facts.in_process = true;
  facts.gpus = std::move(gpus);
  std::optional<checkpoint> resume;
  if (start.resume)
    resume = start.resume->data;
  auto link = std::make_shared<inline_link>(store, callbacks, control);
  auto context =
    std::make_unique<train_context>(std::move(facts), link, std::move(resume));
  auto outcome = run_loop(loop, *context);
  context->end();
  kept.add(std::move(context));
  return {std::move(outcome), link->refusal()};
}

rank_failure failure_of(const loop_outcome& outcome) {
  rank_failure x;
  x.what = cut_reason(redacted(outcome.reason.message));
  x.pid = getpid();
  return x;
}

/// How a run ended; unset *reason*: it finished.
struct run_end {
  run_status_kind status = run_status_kind::finished;
  std::optional<run_error> reason;
};

run_end errored(run_error reason) {
  return {run_status_kind::errored, std::move(reason)};
}

run_end aborted(error reason) {
  return {run_status_kind::aborted, make_run_error(std::move(reason))};
}

run_end preempted(error reason) {
  return {run_status_kind::preempted, make_run_error(std::move(reason))};
}

/// How a run ends whose signals let no further attempt begin.
run_end given_up(const loop_control& control) {
  if (control.ended())
    return control.grace_is_over() ? preempted(control.reason())
                                   : aborted(control.reason());
  return preempted({ec::stopped, control.preemption()->reason});
}

/// From the first attempt to the last.
run_end run_attempts(const run_request& request, run_store& store,
                     inline_callbacks& callbacks, loop_control& control,
                     kept_contexts& kept) {
  failure_policy policy{request.run.failure};
  policy.count_on(store.failures());
  auto is_over = [&control] { return control.ended() || control.preemption(); };
  store.stop_waiting_if(is_over);
  auto start = store.begin_attempt();
  if (start) {
    callbacks.begin_attempt(start->attempt);
    callbacks.before_run();
  }
  for (;;) {
    if (!start)
      return start.error().code == ec::stopped && is_over()
               ? given_up(control)
               : errored(make_run_error(start.error()));
    if (auto& reason = callbacks.end_reason())
      return errored(make_run_error(reason));
    auto [outcome, refusal] =
      run_attempt(request.loop, gpus_of(request.scaling, 0), store, callbacks,
                  *start, control, kept);
    if (refusal)
      return errored(make_run_error(refusal));
    if (auto& reason = callbacks.end_reason())
      return errored(make_run_error(reason));
    auto preemption = control.preemption();
    // A loop that was told to end may return, or leave by any exception.
    if (control.ended())
      outcome = {control.reason(), true};
    if (outcome.stopped)
      return control.grace_is_over() ? preempted(outcome.reason)
                                     : aborted(outcome.reason);
    if (!outcome.reason)
      return preemption && control.stop_requested()
               ? preempted({ec::stopped, preemption->reason})
               : run_end{};
    std::map<int, rank_failure> ranks{{0, failure_of(outcome)}};
    // A journal that takes no line ends the run at the next report.
    (void) store.append_event("ranks_failed", start->attempt,
                              {{"reason", make_run_error(ranks, {}).message}});
    callbacks.after_exception(ranks);
    if (store.next_report() > start->first_report)
      policy.on_progress();
    if (preemption)
      return preempted(
        {ec::stopped, preemption->reason + "; rank 0: " + ranks.at(0).what});
    auto delay = policy.on_ranks_failed();
    store.note_failures(policy.counts());
    if (!delay)
      return errored(make_run_error(std::move(ranks), {}));
    if (control.wait_for_end(*delay))
      return given_up(control);
    if (!callbacks.end_reason())
      start = store.begin_attempt();
  }
}

} // namespace

result run_inline(const run_request& given, loop_control& control,
                  const std::function<void()>& outcome_is_fixed,
                  const std::function<bool()>& hurried) {
  if (auto ok = validate(given); !ok)
    return failed_result(ok.error());
  auto request = given;
  request.run = resolve(std::move(request.run));
  auto opened = run_store::open(request.run, request.loop.config_text);
  if (!opened)
    return failed_result(opened.error());
  auto& store = **opened;
  request.run.name = store.description().name;
  auto started =
    tracker_set::start(request.run, store.description(), store.path(),
                       {[quiet = request.run.quiet](std::string text) {
                          if (!quiet)
                            write_console(2, text + '\n');
                        },
                        {}});
  if (!started)
    return failed_result(started.error());
  std::shared_ptr trackers{std::move(*started)};
  store.on_append([trackers] { trackers->notify(); });
  store.on_loss([trackers, &store](const error&) {
    if (store.folder().is_ousted())
      trackers->abandon();
  });
  request.loop.hooks = request.run.rank_hooks;
  auto context = context_of(request, store);
  context.world_size = 1;
  callback_list list{told_callbacks(request.run.callbacks),
                     request.run.callback_errors};
  auto told = open_told(store, !list.empty());
  if (!told)
    return failed_result(told.error());
  inline_callbacks callbacks{std::move(list), std::move(*told),
                             std::move(context), store, request.run};
  kept_contexts kept;
  auto end = run_attempts(request, store, callbacks, control, kept);
  outcome_is_fixed();
  if (end.status == run_status_kind::aborted
      || end.status == run_status_kind::preempted)
    end.reason->message += text_of_resuming(*request.run.name);
  auto outcome = store.finish(end.status, end.reason);
  if (!outcome)
    outcome = unsaved_result(store.current_result(), end.status,
                             std::move(end.reason), outcome.error());
  callbacks.after_run(*outcome);
  outcome->unsent = trackers->finish(hurried);
  std::ranges::copy(callbacks.skipped(), std::back_inserter(outcome->unsent));
  store.release();
  return std::move(*outcome);
}

} // namespace troupe
