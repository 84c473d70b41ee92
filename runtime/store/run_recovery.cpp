#include "troupe/runtime/store/run_recovery.hpp"

#include <utility>

#include "troupe/runtime/checkpoint/manifest.hpp"

namespace troupe::internal {

namespace {

// How the run ended according to the journal.
expected<void> take_end(saved_run& state, const fs::path& journal_file) {
  return read_last_attempt(journal_file).map([&](const last_attempt& last) {
    if (!last.end)
      return;
    if (auto status = last.end->fields.find("status"))
      if (auto known = run_status_from_string(to_string(*status)))
        state.status = *known;
  });
}

// What was reported with *x*, for the journal.
expected<report_batch> batch_of(const kept_checkpoint& x,
                                const checkpoint_store& checkpoints) {
  report_batch result;
  result.index = x.index;
  auto found = checkpoints.manifest_of(x);
  if (!found && found.error().code != ec::corrupt)
    return tl::unexpected{found.error()};
  if (found && found->index == x.index && found->attempt == x.attempt) {
    result.values = packed(found->values);
    result.step_s = std::move(found->step_s);
    result.wait_s = found->wait_s;
  } else { // Rotten: the entry in the state.
    result.values.push_back(x.values);
  }
  return result;
}

} // namespace

expected<found_state> find_state(const fs::path& journal_file,
                                 const journal& log,
                                 expected<std::optional<saved_run>> saved) {
  if (saved && *saved)
    return found_state{std::move(**saved), {}};
  found_state result;
  TROUPE_TRY_VOID(take_end(result.state, journal_file));
  result.state.next_attempt = log.next_attempt();
  result.state.next_report = log.next_report();
  if (!saved || log.next_attempt() > 0)
    result.events.push_back(
      {"state_rebuilt",
       {{"reason", saved ? "state.json is missing" : saved.error().message}}});
  return result;
}

expected<void> complete_journal(journal& log,
                                const checkpoint_store& checkpoints) {
  for (auto& x : checkpoints.registry().all()) {
    if (x.index < log.next_report())
      continue;
    auto done = batch_of(x, checkpoints)
                  .and_then([&](const report_batch& batch) {
                    return log.append_batch(x.attempt, batch, x.data.name());
                  })
                  .and_then([&] {
                    return log.append_event(
                      "journal_completed", x.attempt,
                      {{"index", x.index}, {"checkpoint", x.data.name()}});
                  });
    if (!done)
      return done;
  }
  return {};
}

expected<void> complete_end(journal& log, const last_attempt& last,
                            const saved_run& state) {
  if (state.next_attempt == 0 || last.end)
    return {};
  if (state.status == run_status_kind::running)
    return log.append_event(
      "driver_lost", state.next_attempt - 1,
      {{"reason", "the driver of this attempt ended unexpectedly: it was "
                  "killed, or lost access to the run's folder"}});
  return log.append_event("run_ended", state.next_attempt - 1,
                          end_fields(state.status, state.error));
}

metrics end_fields(run_status_kind status,
                   const std::optional<run_error>& error) {
  metrics result{{"status", to_string(status)}};
  if (error)
    result["error"] = error->message;
  return result;
}

failure_counts failures_of(const saved_run& state, const last_attempt& last) {
  if (state.status == run_status_kind::errored)
    return {};
  auto result = state.failures;
  auto& failure = last.failure;
  if (state.status != run_status_kind::running || !failure
      || failure->attempt + 1 != state.next_attempt)
    return result;
  auto started = failure->fields.find("started");
  ++(started && *started == metric_value{false} ? result.starts : result.ranks);
  return result;
}

} // namespace troupe::internal
