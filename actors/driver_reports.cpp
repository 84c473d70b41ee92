// What the DRIVER does with reports: has them stored, answers, and sends them
// to callbacks.

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// The name for all callbacks if the actor that calls them has ended.
constexpr auto all_callbacks = "all callbacks";

} // namespace

// -- batches

caf::result<report_committed> driver_state::add(commit_batch& x) {
  if (!begun || x.attempt != begun->attempt)
    return to_caf(
      error{ec::stopped, concat("attempt ", x.attempt, " is over")});
  if (refusal)
    return to_caf(refusal);
  auto promise = self->make_response_promise<report_committed>();
  batches.add({std::move(x), promise, {}});
  store_next();
  return promise;
}

void driver_state::store_next() {
  if (callbacks_under_way >= callback_queue)
    return;
  auto* next = batches.store_next();
  if (!next)
    return;
  if (!next->message.batch.checkpoint_name()) {
    stored(std::nullopt);
    return;
  }
  next->commit_begin = clock::now();
  request(self, args.committer, caf::infinite, next->message)
    .then(
      [this](report_committed& committed) {
        show_store_events();
        stored(std::move(committed.checkpoint));
        commit_over();
      },
      [this](caf::error& reason) {
        show_store_events();
        store_failed(batches.pop(), from_caf(reason));
        commit_over();
      });
}

void driver_state::stored(std::optional<std::string> folder) {
  auto batch = batches.pop();
  auto attempt = batch.message.attempt;
  auto index = batch.message.batch.index;
  auto name = batch.message.batch.checkpoint_name();
  std::chrono::duration<double> commit_time{0};
  if (name)
    commit_time = clock::now() - batch.commit_begin;
  auto ok =
    args.store->append(attempt, batch.message.batch,
                       name ? *name : std::string{}, commit_time.count());
  if (!ok) {
    store_failed(std::move(batch), ok.error());
    return;
  }
  batch.promise.deliver(
    report_committed{index, folder, judge(batch.message.batch)});
  machine->on_progress();
  rate->add(clock::now());
  shown.last_report = index;
  shown.reports = index + 1;
  if (has_listeners()) // Made only for them: this is every report's way.
    call_back(after_report{
      args.context.id, index, attempt, unpacked(batch.message.batch.values),
      folder ? std::optional{checkpoint::from_directory(std::move(*folder))}
             : std::nullopt});
  else
    skip_callbacks(index);
  show();
  store_next();
}

std::optional<stop_notice> driver_state::judge(const report_batch& batch) {
  auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
    self->clock().now() - begin_time);
  if (auto enough = stops.judge(batch, elapsed))
    store_stop(*enough);
  if (stops.reason().empty())
    return std::nullopt;
  return stop_notice{batch.index, stops.reason(), 0,
                     stop_info::kind_type::finished};
}

void driver_state::store_stop(const std::string& reason) {
  args.store->note_stop(reason);
  args.monitor->note("the run ends: " + reason);
  note_event(event_kind::stop_decided, {{"reason", reason}});
}

void driver_state::store_failed(pending_batch batch, const error& reason) {
  refusal = reason;
  // First, so that ranks leave because they are asked to.
  apply(run_events::fatal_failure{reason});
  batch.promise.deliver(to_caf(reason));
  refuse_batches(reason);
}

void driver_state::refuse_batches(const error& reason) {
  for (auto& batch : batches.take_waiting())
    batch.promise.deliver(to_caf(reason));
}

void driver_state::commit_over() {
  if (auto attempt = std::exchange(gone_attempt, std::nullopt))
    group_gone(*attempt);
}

// -- callbacks

template <class Message>
void driver_state::call_back(Message message) {
  std::optional<std::uint64_t> report;
  if constexpr (std::is_same_v<Message, after_report>)
    report = message.index;
  if (!followers.empty())
    tell_followers(message);
  if (!callbacks) {
    if (report)
      skip_callbacks(*report);
    return;
  }
  ++callbacks_under_way;
  request(self, callbacks, caf::infinite, std::move(message))
    .then([this, report](const callback_done& x) { called_back(x, report); },
          [this, report](caf::error& reason) {
            called_back({0, false, {from_caf(reason)}, {}, {all_callbacks}, {}},
                        report);
          });
}

void driver_state::skip_callbacks(std::uint64_t report) {
  if (args.cursor) // Their actor was lost.
    (void) args.cursor->mark_delivered(report, {all_callbacks});
}

void driver_state::introduce() {
  if (callbacks && !std::exchange(is_introduced, true))
    call_back(before_run{context_at(args.first.attempt)});
}

// Called in other files.
template void driver_state::call_back(after_exception);
template void driver_state::call_back(after_run);

// As many as the queue allows: new reports come after the last of them. The
// next driver replays those that a preempted run does not reach.
void driver_state::replay_pending() {
  while (callbacks && !ending.is_storing()
         && callbacks_under_way < callback_queue) {
    auto x = args.cursor->next_pending();
    if (!x)
      apply(run_events::fatal_failure{x.error()});
    if (!x || !*x)
      return;
    auto& [batch, data] = **x;
    call_back(after_report{args.context.id, batch.index, batch.attempt,
                           std::move(batch.values), std::move(data)});
  }
}

void driver_state::called_back(const callback_done& x,
                               std::optional<std::uint64_t> report) {
  --callbacks_under_way;
  if (report)
    if (auto ok = args.cursor->mark_delivered(*report, x.skipped); !ok)
      apply(run_events::fatal_failure{ok.error()});
  replay_pending();
  note_answer(x);
  if (ending.has_begun())
    take_next_step();
  else if (machine->state() == run_state::initializing)
    carry_out(machine->begin());
  else
    store_next();
}

void driver_state::note_answer(const callback_done& x) {
  shown.callback_s += x.seconds;
  add_times(shown.callbacks, x.times);
  for (auto& failure : x.failures)
    note_callback_failure(failure.message);
  for (auto& order : x.orders)
    carry_out(order);
  if (x.abort && !ending.has_begun())
    apply(run_events::fatal_failure{x.failures.front()});
}

void driver_state::note_callback_failure(const std::string& reason) {
  // A list of callbacks cleans its own; what an actor answers may be anything.
  auto text = redacted(reason);
  args.monitor->note(text);
  note_event("callback_failed", {{"reason", text}});
}

// -- what loops log

caf::result<void> driver_state::log(const log_event& x) {
  auto ok = args.store->append_event(x.event.kind, x.attempt, x.event.fields);
  if (!ok) {
    apply(run_events::fatal_failure{ok.error()});
    return to_caf(ok.error());
  }
  if (auto text = text_of_warning(x.event))
    args.monitor->note(*text);
  return caf::unit;
}

} // namespace troupe::internal
