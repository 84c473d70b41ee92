#include "troupe/runtime/store/run_recovery.hpp"

#include <string>
#include <utility>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"

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
  if (saved && *saved) {
    found_state result{std::move(**saved), {}};
    if (log.next_attempt() == 0 && log.next_report() == 0
        && result.state.next_report > 0)
      result.events.push_back({"journal_lost", {}, false, {}});
    return result;
  }
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

expected<std::vector<store_event>>
complete_journal(journal& log, const checkpoint_store& checkpoints) {
  std::vector<store_event> result;
  std::size_t count = 0;
  for (auto& x : checkpoints.registry().all()) {
    if (x.index < log.next_report())
      continue;
    store_event event{std::string{event_kind::journal_completed},
                      {{"index", x.index}, {"checkpoint", x.data.name()}},
                      true,
                      {}};
    TROUPE_TRY(auto batch, batch_of(x, checkpoints));
    TROUPE_TRY_VOID(log.append_batch(x.attempt, batch, x.data.name()));
    TROUPE_TRY_VOID(log.append_event(event.kind, x.attempt, event.fields));
    // They may be many: more than one share a line.
    if (++count == 1)
      result.push_back(std::move(event));
    else
      result.front().text =
        concat(count, " reports were not in the journal and are taken from "
                      "their checkpoints");
  }
  return result;
}

expected<std::vector<store_event>>
complete_end(journal& log, const last_attempt& last, const saved_run& state) {
  if (state.next_attempt == 0)
    return std::vector<store_event>{};
  auto attempt = state.next_attempt - 1;
  // A driver may be killed between the state of its attempt and the line.
  auto has_later = state.status == run_status_kind::running && last.end
                   && last.end->attempt < attempt;
  if (last.end && !has_later)
    return std::vector<store_event>{};
  if (state.status != run_status_kind::running) // Its user has seen it.
    return log
      .append_event(event_kind::run_ended, attempt,
                    end_fields(state.status, state.error))
      .map([] { return std::vector<store_event>{}; });
  store_event lost{
    std::string{event_kind::driver_lost},
    {{"reason", concat("the driver of attempt ", attempt,
                       " ended unexpectedly: it was killed, or lost access to "
                       "the run's folder")}},
    true,
    {}};
  return log.append_event(lost.kind, attempt, lost.fields).map([&] {
    return std::vector<store_event>{std::move(lost)};
  });
}

std::vector<store_event> changes_since(const earlier_driver& before,
                                       const run_description& now,
                                       std::size_t world_size) {
  std::vector<store_event> result;
  if (before.next_attempt == 0)
    return result;
  if (now.id_is_new)
    result.push_back(
      {"description_lost", {{"reason", now.why_new}}, false, {}});
  auto what = now.changes;
  if (before.world_size > 0 && world_size > 0
      && before.world_size != world_size)
    what.push_back(
      concat(counted(world_size, "rank"), " instead of ", before.world_size));
  if (!what.empty())
    result.push_back(
      {"run_changed",
       {{"before", before.next_attempt - 1}, {"what", joined(what)}},
       false,
       {}});
  return result;
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
