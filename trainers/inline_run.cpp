#include "troupe/trainers/inline_run.hpp"

#include <unistd.h>

#include "troupe/callbacks/console.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/run/failure_policy.hpp"
#include "troupe/trainers/context_of.hpp"
#include "troupe/trainers/inline_link.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe {

namespace {

result failed_result(error reason) {
  result x;
  x.status = run_status_kind::errored;
  x.error = make_run_error(std::move(reason));
  return x;
}

/// One life of rank 0.
loop_outcome run_attempt(const run_request& request, run_store& store,
                         callback_list& callbacks, run_context& context,
                         const loop_control& control, kept_contexts& kept) {
  auto start = store.begin_attempt();
  if (!start)
    return {start.error(), false};
  context.attempt = start->attempt;
  rank_facts facts;
  facts.run_name = context.name;
  facts.run_path = context.path;
  facts.run_id = store.description().id;
  facts.attempt = start->attempt;
  facts.first_report = start->first_report;
  facts.in_process = true;
  std::optional<checkpoint> resume;
  if (start->resume)
    resume = start->resume->data;
  auto link = std::make_shared<inline_link>(store, callbacks, context, control);
  auto loop_context =
    std::make_unique<train_context>(std::move(facts), link, std::move(resume));
  auto outcome = run_loop(request.loop, *loop_context);
  loop_context->end();
  kept.add(std::move(loop_context));
  return outcome;
}

rank_failure failure_of(const loop_outcome& outcome) {
  rank_failure x;
  x.what = outcome.reason.message;
  x.pid = getpid();
  return x;
}

/// Whether another attempt may end differently: what the user's loop threw, not
/// what the run itself refused.
bool is_loop_failure(const loop_outcome& x) {
  return x.reason.code == ec::rank_failed
         || x.reason.code == ec::invalid_argument;
}

} // namespace

result run_inline(const run_request& given, loop_control& control) {
  if (auto ok = validate(given); !ok)
    return failed_result(ok.error());
  auto request = given;
  request.run = resolve(std::move(request.run));
  auto opened = run_store::open(request.run, request.loop.config_text);
  if (!opened)
    return failed_result(opened.error());
  auto& store = **opened;
  auto trackers =
    tracker_set::start(request.run, store.description(), store.path(),
                       {[quiet = request.run.quiet](std::string text) {
                          if (!quiet)
                            write_console(2, text + '\n');
                        },
                        {}});
  if (!trackers)
    return failed_result(trackers.error());
  store.on_append([&trackers] { (*trackers)->notify(); });
  callback_list callbacks{told_callbacks(request.run.callbacks),
                          request.run.callback_errors};
  auto context = context_of(request, store);
  context.world_size = 1;
  (void) callbacks.before_run(context);
  kept_contexts kept;
  failure_policy policy{request.run.failure};
  auto status = run_status_kind::finished;
  std::optional<run_error> reason;
  for (;;) {
    auto outcome =
      run_attempt(request, store, callbacks, context, control, kept);
    if (!outcome.reason)
      break;
    if (outcome.stopped) {
      status = run_status_kind::aborted;
      reason = make_run_error(outcome.reason);
      break;
    }
    if (!is_loop_failure(outcome)) {
      status = run_status_kind::errored;
      reason = make_run_error(outcome.reason);
      break;
    }
    std::map<int, rank_failure> ranks{{0, failure_of(outcome)}};
    (void) callbacks.after_exception(context, ranks);
    if (!policy.on_ranks_failed()) {
      status = run_status_kind::errored;
      reason = make_run_error(std::move(ranks), store.path());
      break;
    }
  }
  auto outcome = store.finish(status, reason);
  if (!outcome) {
    auto last = store.current_result();
    last.status = run_status_kind::errored;
    last.error = reason ? reason : make_run_error(outcome.error());
    outcome = std::move(last);
  }
  (void) callbacks.after_run(context, *outcome);
  (*trackers)->finish();
  return std::move(*outcome);
}

} // namespace troupe
