#include "troupe/runtime/run/run_store.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/journal/journal_reader.hpp"
#include "troupe/runtime/run/make_result.hpp"
#include "troupe/runtime/run/saved_run.hpp"

namespace troupe {

namespace {

struct found_state {
  saved_run state;
  bool existed = false;
  std::vector<store_event> events;
};

// How the journal says that the run ended.
expected<void> take_end(saved_run& state, const fs::path& journal_file) {
  auto end = read_run_end(journal_file);
  if (!end)
    return tl::unexpected{end.error()};
  if (!*end)
    return {};
  if (auto status = (*end)->fields.find("status"))
    if (auto known = run_status_from_string(to_string(*status)))
      state.status = *known;
  return {};
}

// The run's state; rebuilt from the journal if it is damaged or lost, so that a
// finished run stays finished. The checkpoint store adopts what the rebuilt one
// does not know.
expected<found_state> find_state(const run_folder& folder, const journal& log,
                                 expected<std::optional<saved_run>> saved) {
  if (saved && *saved)
    return found_state{std::move(**saved), true, {}};
  found_state result;
  if (auto ok = take_end(result.state, folder.journal_file()); !ok)
    return tl::unexpected{ok.error()};
  result.existed = !saved || log.next_attempt() > 0;
  result.state.next_attempt = log.next_attempt();
  result.state.next_report = log.next_report();
  if (result.existed)
    result.events.push_back(
      {"state_rebuilt",
       {{"reason", saved ? "state.json is missing" : saved.error().message}}});
  return result;
}

// What was reported with *x*, for the journal.
expected<report_batch> batch_of(const reported_checkpoint& x) {
  report_batch result;
  result.index = x.index;
  auto found = read_manifest(x.data.path());
  if (!found && found.error().code != ec::corrupt)
    return tl::unexpected{found.error()};
  if (found && found->index == x.index && found->attempt == x.attempt) {
    result.values = std::move(found->values);
    result.step_s = std::move(found->step_s);
    result.wait_s = found->wait_s;
  } else { // Rotten: what the state has of it.
    result.values.push_back(x.values);
  }
  return result;
}

// Appends the reports that came with a checkpoint and are in no line: their
// driver died between commit and journal (N4, N5).
expected<void> complete(journal& log,
                        const std::vector<reported_checkpoint>& all) {
  for (auto& x : all) {
    if (x.index < log.next_report())
      continue;
    auto done = batch_of(x)
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

tl::unexpected<error> already_finished(const run_folder& folder) {
  return failure(ec::conflict,
                 "the run " + folder.path().string()
                   + " has finished: choose another run.name, or remove that "
                     "folder; result::from_path reads what it left");
}

metrics first_values(std::optional<history_row> x) {
  return x && !x->values.empty() ? std::move(x->values[0]) : metrics{};
}

} // namespace

run_store::run_store(run_folder folder, std::unique_ptr<journal> log,
                     checkpoint_store checkpoints, run_description description,
                     bool resumed)
  : folder_(std::move(folder)), journal_(std::move(log)),
    checkpoints_(std::move(checkpoints)), description_(std::move(description)),
    resumed_(resumed) {}

expected<std::unique_ptr<run_store>>
run_store::open(const run_config& config, const std::string& config_text) {
  if (!config.name)
    return failure(ec::invalid_config, "run.name is unset");
  auto folder = run_folder::open(config.storage_path, *config.name);
  if (!folder)
    return tl::unexpected{folder.error()};
  // Before anything is written: a finished run stays as it is, and so does one
  // whose state cannot be read now.
  auto saved = load_run(folder->path());
  if (!saved && saved.error().code != ec::corrupt)
    return tl::unexpected{saved.error()};
  if (saved && *saved && (*saved)->status == run_status_kind::finished)
    return already_finished(*folder);
  auto log = journal::open(folder->journal_file());
  if (!log)
    return tl::unexpected{log.error()};
  auto found = find_state(*folder, **log, std::move(saved));
  if (!found)
    return tl::unexpected{found.error()};
  auto checkpoints = checkpoint_store::open(
    folder->path(), *config.name, config.checkpoint, std::move(found->state));
  if (!checkpoints)
    return tl::unexpected{checkpoints.error()};
  if (auto ok = complete(**log, checkpoints->registry().all()); !ok)
    return tl::unexpected{ok.error()};
  if (checkpoints->state().status == run_status_kind::finished) {
    // It has its state back now.
    for (auto& x : found->events)
      if (auto ok = (*log)->append_event(x.kind, 0, x.fields); !ok)
        return tl::unexpected{ok.error()};
    return already_finished(*folder);
  }
  auto last = read_last_batch(folder->journal_file());
  if (!last)
    return tl::unexpected{last.error()};
  auto description = describe_run(folder->path(), *config.name, config_text);
  if (!description)
    return tl::unexpected{description.error()};
  std::unique_ptr<run_store> result{
    new run_store{std::move(*folder), std::move(*log), std::move(*checkpoints),
                  std::move(*description), found->existed}};
  result->last_metrics_ = first_values(std::move(*last));
  return result->note_events(result->journal_->events())
    .and_then([&] { return result->note_events(std::move(found->events)); })
    .and_then(
      [&] { return result->note_events(result->checkpoints_.take_events()); })
    .map([&] { return std::move(result); });
}

expected<void> run_store::note_events(std::vector<store_event> events) {
  for (auto& x : events) {
    if (auto ok = journal_->append_event(x.kind, attempt_, x.fields); !ok)
      return ok;
    std::lock_guard guard{notes_mutex_};
    events_.push_back(std::move(x));
  }
  return {};
}

metrics run_store::last_metrics() const {
  std::lock_guard guard{notes_mutex_};
  return last_metrics_;
}

expected<attempt_start> run_store::begin_attempt() {
  std::lock_guard guard{checkpoints_mutex_};
  auto resume = checkpoints_.resume_checkpoint();
  if (!resume)
    return tl::unexpected{resume.error()};
  auto attempt = checkpoints_.begin_attempt(journal_->next_report());
  if (!attempt)
    return tl::unexpected{attempt.error()};
  attempt_ = *attempt;
  if (auto ok = note_events(checkpoints_.take_events()); !ok)
    return tl::unexpected{ok.error()};
  attempt_start result{*attempt, checkpoints_.state().next_report,
                       std::move(*resume)};
  metrics fields{{"first_report", result.first_report}};
  if (result.resume)
    fields["resume"] = result.resume->data.name();
  return journal_->append_event("attempt_begun", *attempt, fields).map([&] {
    return std::move(result);
  });
}

expected<reported_checkpoint> run_store::commit(std::uint64_t attempt,
                                                const report_batch& batch) {
  std::lock_guard guard{checkpoints_mutex_};
  auto result = checkpoints_.commit(attempt, batch);
  // The commit stands, whatever becomes of the journal.
  auto events = checkpoints_.take_events();
  if (!events.empty())
    (void) note_events(std::move(events));
  return result;
}

expected<void> run_store::append(std::uint64_t attempt,
                                 const report_batch& batch,
                                 const std::string& checkpoint,
                                 double checkpoint_s) {
  if (auto ok =
        journal_->append_batch(attempt, batch, checkpoint, checkpoint_s);
      !ok)
    return ok;
  {
    std::lock_guard guard{notes_mutex_};
    last_metrics_ = batch.values.empty() ? metrics{} : batch.values[0];
  }
  appended_();
  return {};
}

expected<std::optional<reported_checkpoint>>
run_store::store(std::uint64_t attempt, const report_batch& batch) {
  std::optional<reported_checkpoint> result;
  auto begin = std::chrono::steady_clock::now();
  if (batch.checkpoint_name()) {
    auto committed = commit(attempt, batch);
    if (!committed)
      return tl::unexpected{committed.error()};
    result = std::move(*committed);
  }
  std::chrono::duration<double> spent =
    std::chrono::steady_clock::now() - begin;
  return append(attempt, batch, result ? result->data.name() : std::string{},
                spent.count())
    .map([&] { return std::move(result); });
}

expected<void> run_store::append_event(std::string_view kind,
                                       std::uint64_t attempt,
                                       const metrics& fields) {
  return journal_->append_event(kind, attempt, fields).map([this] {
    appended_();
  });
}

std::vector<reported_checkpoint> run_store::checkpoints() const {
  std::lock_guard guard{checkpoints_mutex_};
  return checkpoints_.registry().all();
}

expected<result> run_store::finish(run_status_kind status,
                                   std::optional<run_error> error) {
  metrics fields{{"status", to_string(status)}};
  if (error)
    fields["error"] = error->message;
  auto noted =
    journal_->append_event("run_ended", attempt_, fields).and_then([&] {
      return journal_->sync();
    });
  std::lock_guard guard{checkpoints_mutex_};
  // Even if the journal is broken: the state says how the run ended.
  auto saved = checkpoints_.finish(status, error, journal_->next_report());
  if (!saved)
    return tl::unexpected{saved.error()};
  if (auto events = checkpoints_.take_events(); !events.empty())
    (void) note_events(std::move(events));
  if (!noted)
    return tl::unexpected{noted.error()};
  return make_result(checkpoints_.state(), path(), last_metrics());
}

result run_store::current_result() const {
  std::lock_guard guard{checkpoints_mutex_};
  return make_result(checkpoints_.state(), path(), last_metrics());
}

std::vector<store_event> run_store::take_events() {
  std::lock_guard guard{notes_mutex_};
  return std::exchange(events_, {});
}

} // namespace troupe
