#include "troupe/runtime/store/run_store.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/store/run_recovery.hpp"
#include "troupe/runtime/store/saved_run.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How long an attempt waits for ranks on hosts that are known to be lost.
/// Those of other hosts, and what they have left, are gone by then.
constexpr auto lost_host_patience = std::chrono::seconds{1};

/// How long agents of an earlier driver may take until they know that it is
/// gone, if their network is, and have ended their ranks.
constexpr auto earlier_agents_patience = std::chrono::seconds{15};

tl::unexpected<error> already_finished(const run_folder& folder) {
  return failure(
    ec::conflict,
    "the run " + folder.path().string()
      + " has finished: choose another run.name, run.if_finished = "
        "number or replace, or remove that folder; "
        "result::from_path reads what it left");
}

metrics first_values(std::optional<journaled_batch> x) {
  return x && !x->values.empty() ? std::move(x->values[0]) : metrics{};
}

// Before anything is written: a finished run stays as it is, and so does one
// whose state cannot be read now. Returns the number of the next attempt; sets
// *finished* if there is none.
expected<std::uint64_t> refuse_finished(run_folder& folder, bool& finished) {
  auto saved = folder.load_state();
  if (!saved && saved.error().code != ec::corrupt)
    return tl::unexpected{saved.error()};
  if (!saved || !*saved)
    return 0;
  finished = (*saved)->status == run_status_kind::finished;
  if (finished)
    return already_finished(folder);
  return (*saved)->next_attempt;
}

// Removes the run *name*, if it has finished and no driver has it. It leaves
// its name at once: a crash leaves no half of a run under it, and the next call
// removes the rest.
expected<void> remove_finished(const fs::path& storage,
                               const std::string& name) {
  TROUPE_TRY(auto folder, run_folder::open(storage, name));
  auto finished = false;
  if (auto open = refuse_finished(*folder, finished); !finished)
    return std::move(open).map([](std::uint64_t) {});
  auto above = folder->path().parent_path();
  auto prefix = ".replaced-" + name + "-";
  TROUPE_TRY_VOID(
    rename_new(folder->path(), above / fs::unique_path(prefix + "%%%%%%%%")));
  folder.reset();                   // NFS keeps what is open.
  boost::system::error_code failed; // What is left does no harm.
  for (fs::directory_iterator i{above, failed}, end; !failed && i != end;
       i.increment(failed)) {
    auto found = i->path().filename().string();
    boost::system::error_code ignored;
    if (found.starts_with(prefix) && found.size() == prefix.size() + 8)
      fs::remove_all(i->path(), ignored);
  }
  return {};
}

expected<std::unique_ptr<journal>> open_journal(const run_folder& folder) {
  return folder.files()
    .open_file(run_layout::journal, journal::open_flags(), "open")
    .and_then([&](unique_fd file) {
      return journal::open(std::move(file), folder.journal_file());
    });
}

// Claims the run and waits until no driver of another host writes to it.
expected<void> take(run_folder& folder, std::uint64_t attempt) {
  TROUPE_TRY(auto other_is_alive, folder.claim(attempt));
  if (other_is_alive)
    std::this_thread::sleep_for(run_folder::takeover_wait);
  return {};
}

} // namespace

run_store::run_store(std::unique_ptr<run_folder> folder,
                     std::unique_ptr<journal> log, checkpoint_store checkpoints,
                     run_description description)
  : folder_(std::move(folder)), journal_(std::move(log)),
    checkpoints_(std::move(checkpoints)), description_(std::move(description)) {
}

expected<std::unique_ptr<run_store>>
run_store::open(const run_config& config, const std::string& config_text,
                std::size_t world_size) {
  auto finished = false;
  auto begin = [&](expected<std::unique_ptr<run_folder>> folder) {
    finished = false;
    return std::move(folder).and_then([&](std::unique_ptr<run_folder> x) {
      return open(std::move(x), config, config_text, world_size, finished);
    });
  };
  if (!config.name)
    return begin(run_folder::open_new(config.storage_path));
  auto name = *config.name;
  for (auto number = 2;; ++number) {
    auto result = begin(run_folder::open(config.storage_path, name));
    if (!finished || config.if_finished == if_finished::refuse)
      return result;
    if (config.if_finished == if_finished::replace)
      TROUPE_TRY_VOID(remove_finished(config.storage_path, name));
    else
      name = concat(*config.name, '-', number);
  }
}

expected<std::unique_ptr<run_store>>
run_store::open(std::unique_ptr<run_folder> folder, const run_config& config,
                const std::string& config_text, std::size_t world_size,
                bool& finished) {
  auto& files = *folder;
  auto name = files.path().filename().string();
  TROUPE_TRY(auto number, refuse_finished(files, finished));
  TROUPE_TRY_VOID(take(files, number));
  // Until now another driver could write.
  auto saved = files.load_state();
  if (!saved && saved.error().code != ec::corrupt)
    return tl::unexpected{saved.error()};
  TROUPE_TRY(auto log, open_journal(files));
  TROUPE_TRY(auto found,
             find_state(files.journal_file(), *log, std::move(saved)));
  TROUPE_TRY(auto description, describe_run(files.files(), name, config_text));
  TROUPE_TRY(auto held, files.files().duplicate());
  auto save = [&files](const saved_run& x) { return files.save_state(x); };
  auto note = [&files, into = log.get()](const store_event& x,
                                         std::uint64_t attempt) {
    return files.check().and_then(
      [&] { return into->append_event(x.kind, attempt, x.fields); });
  };
  TROUPE_TRY(
    auto checkpoints,
    checkpoint_store::open(
      std::move(held),
      {name, description.id, description.id_is_new, description.former_ids},
      config.checkpoint, std::move(found.state), std::move(save),
      std::move(note), [&files] { return files.check_all(); }));
  TROUPE_TRY(auto completed, complete_journal(*log, checkpoints));
  TROUPE_TRY(auto latest, read_last_attempt(files.journal_file()));
  TROUPE_TRY(auto ended, complete_end(*log, latest, checkpoints.state()));
  if (checkpoints.state().status == run_status_kind::finished) {
    // Its state is rebuilt now.
    for (auto& x : found.events)
      TROUPE_TRY_VOID(log->append_event(x.kind, 0, x.fields));
    finished = true;
    return already_finished(files);
  }
  TROUPE_TRY(auto last, read_last_batch(files.journal_file()));
  auto changed = changes_since(
    {checkpoints.state().next_attempt, last ? last->values.size() : 0},
    description, world_size);
  description.former_ids = checkpoints.former_ids();
  TROUPE_TRY_VOID(save_description(files.files(), description));
  std::unique_ptr<run_store> result{
    new run_store{std::move(folder), std::move(log), std::move(checkpoints),
                  std::move(description)}};
  result->last_metrics_ = first_values(std::move(last));
  result->start_timeout_ = config.start_timeout;
  result->checkpoints_.hold_from(
    [x = result.get()] { return x->held_from_.load(); });
  auto& state = result->checkpoints_.state();
  result->attempt_ = state.next_attempt;
  result->failures_ = failures_of(state, latest);
  result->stop_reason_ = std::move(latest.stop_reason);
  result->was_interrupted_ =
    latest.failure || (latest.end && latest.end->kind == "run_ended");
  return result->note_events(result->journal_->events())
    .and_then([&] { return result->note_events(std::move(found.events)); })
    .and_then([&] { return result->note_events(std::move(completed)); })
    .and_then([&] { return result->note_events(std::move(ended)); })
    .and_then([&] { return result->note_events(std::move(changed)); })
    .and_then(
      [&] { return result->note_events(result->checkpoints_.take_events()); })
    .and_then([&] { return result->start_sync(); })
    .map([&] { return std::move(result); });
}

expected<void> run_store::note_events(std::vector<store_event> events) {
  for (auto& x : events) {
    auto noted = x.stored ? expected<void>{} : append_ours([&] {
      return journal_->append_event(x.kind, attempt_, x.fields);
    });
    if (!noted)
      return noted;
    std::lock_guard guard{notes_mutex_};
    events_.push_back(std::move(x));
  }
  return {};
}

void run_store::on_loss(std::function<void(const error&)> f) {
  std::unique_lock lock{notes_mutex_};
  lost_ = std::move(f);
  if (!is_lost_)
    return;
  lock.unlock();
  lost_(loss_);
}

void run_store::on_end_request(std::function<void(const end_request&)> f) {
  std::lock_guard guard{notes_mutex_};
  end_requested_ = std::move(f);
}

expected<void> run_store::check() const {
  if (is_lost_) {
    std::lock_guard guard{notes_mutex_};
    return tl::unexpected{loss_};
  }
  return folder_->check();
}

bool run_store::keep() {
  auto kept = try_keep();
  if (!kept)
    lose(kept.error());
  return kept.has_value();
}

expected<void> run_store::try_keep() noexcept {
  try {
    auto ours = folder_->check_all();
    if (ours)
      pass_on_end_request();
    return ours || !folder_->is_ousted() ? journal_->sync() : ours;
  } catch (...) {
    return tl::unexpected{caught("the run could not be kept durable")};
  }
}

// One that cannot be read is looked for again.
void run_store::pass_on_end_request() {
  std::unique_lock lock{notes_mutex_};
  auto tell = end_requested_;
  lock.unlock();
  if (!tell) // The run has not begun: the request waits.
    return;
  auto request = take_end_request(folder_->files(), own_identity());
  if (request && *request)
    tell(**request);
}

void run_store::lose(const error& reason) {
  std::function<void(const error&)> tell;
  {
    std::lock_guard guard{notes_mutex_};
    if (is_lost_)
      return;
    loss_ = reason;
    is_lost_ = true;
    tell = lost_;
  }
  if (tell)
    tell(reason);
}

void run_store::release() {
  sync_.end();
  if (journal_->has_unsynced() && check())
    (void) journal_->sync();
  // While a commit is under way that is no longer waited for, they are left to
  // the next start.
  if (std::unique_lock idle{checkpoints_mutex_, std::try_to_lock})
    try {
      checkpoints_.remove_held();
    } catch (...) { // No memory: they are the next start's, too.
    }
  folder_->release();
  std::lock_guard guard{notes_mutex_};
  lost_ = {};
}

failure_counts run_store::failures() const {
  std::lock_guard guard{notes_mutex_};
  return failures_;
}

void run_store::note_failures(const failure_counts& x) {
  std::lock_guard guard{notes_mutex_};
  failures_ = x;
}

std::string run_store::stop_reason() const {
  std::lock_guard guard{notes_mutex_};
  return stop_reason_;
}

void run_store::note_stop(std::string reason) {
  std::lock_guard guard{notes_mutex_};
  stop_reason_ = std::move(reason);
}

packed_metrics run_store::last_metrics() const {
  std::lock_guard guard{notes_mutex_};
  return last_metrics_;
}

void run_store::abandon_ranks_of(const std::string& host) {
  std::lock_guard guard{notes_mutex_};
  lost_hosts_.insert(host);
}

std::string run_store::abandoned_hosts(std::chrono::milliseconds waited) const {
  std::lock_guard guard{notes_mutex_};
  if (lost_hosts_.empty())
    return had_hosts_ && waited >= earlier_agents_patience ? "an earlier driver"
                                                           : std::string{};
  if (waited < lost_host_patience)
    return {};
  return joined(lost_hosts_);
}

expected<attempt_start> run_store::begin_attempt() {
  std::lock_guard guard{checkpoints_mutex_};
  TROUPE_TRY_VOID(seen(folder_->claim(checkpoints_.state().next_attempt)));
  auto is_over = [this] { return is_given_up(); };
  auto limit = start_timeout_;
  if (had_hosts_)
    limit =
      std::max<std::chrono::milliseconds>(limit, 2 * earlier_agents_patience);
  TROUPE_TRY_VOID(
    folder_->await_ranks(limit, is_over, note_, [this](auto waited) {
      return abandoned_hosts(waited);
    }));
  {
    std::lock_guard noted{notes_mutex_};
    had_hosts_ = false;
    lost_hosts_.clear();
  }
  checkpoints_.note_failures(failures());
  TROUPE_TRY(auto resume, checkpoints_.resume_checkpoint());
  if (is_over()) // Checksums may have taken minutes.
    return failure(ec::stopped, "the run was stopped before its attempt began");
  TROUPE_TRY(auto attempt, checkpoints_.begin_attempt(journal_->next_report()));
  attempt_ = attempt;
  TROUPE_TRY_VOID(note_events(checkpoints_.take_events()));
  attempt_start result{attempt, checkpoints_.state().next_report,
                       std::move(resume)};
  metrics fields{{"first_report", result.first_report}};
  if (result.resume)
    fields["resume"] = result.resume->data.name();
  show_start(result);
  return append_ours([&] {
           return journal_->append_event("attempt_begun", attempt, fields);
         })
    .map([&] {
      appended_();
      return std::move(result);
    });
}

void run_store::show_start(const attempt_start& x) {
  if (!x.resume && x.first_report == 0)
    return; // There is nothing to resume.
  auto count = std::to_string(x.first_report);
  auto text = concat("attempt ", x.attempt, " resumes after ", count,
                     (x.first_report == 1 ? " report" : " reports"));
  text += x.resume ? concat(" from ", x.resume->data.name(), ", which report ",
                            x.resume->index, " saved")
                   : ", without a checkpoint";
  std::lock_guard guard{notes_mutex_};
  // The journal has it in `attempt_begun`.
  events_.push_back({"resumed", {}, true, std::move(text)});
}

expected<kept_checkpoint> run_store::commit(std::uint64_t attempt,
                                            const report_batch& batch) {
  std::lock_guard guard{checkpoints_mutex_};
  auto result = seen(
    check().and_then([this] { return folder_->check_all(); }).and_then([&] {
      return checkpoints_.commit(attempt, batch);
    }));
  // The commit stands, even if the journal fails.
  auto events = checkpoints_.take_events();
  if (!events.empty())
    (void) note_events(std::move(events));
  return result;
}

expected<void> run_store::append(std::uint64_t attempt,
                                 const report_batch& batch,
                                 const std::string& checkpoint,
                                 double checkpoint_s) {
  auto stored = append_ours([&] {
    return journal_->append_batch(attempt, batch, checkpoint, checkpoint_s);
  });
  if (!stored)
    return stored;
  {
    auto last = batch.values.empty() ? packed_metrics{} : batch.values[0];
    std::lock_guard guard{notes_mutex_};
    std::swap(last_metrics_, last);
  }
  appended_();
  return {};
}

expected<void> run_store::append_event(std::string_view kind,
                                       std::uint64_t attempt,
                                       const metrics& fields) {
  return append_ours(
           [&] { return journal_->append_event(kind, attempt, fields); })
    .map([this] { appended_(); });
}

expected<std::vector<kept_checkpoint>>
run_store::hold_checkpoints_again(std::uint64_t first) {
  hold_checkpoints(first);
  std::lock_guard guard{checkpoints_mutex_};
  TROUPE_TRY(auto result, seen(checkpoints_.hold_evicted(
                            first, [this] { return is_given_up(); })));
  TROUPE_TRY_VOID(note_events(checkpoints_.take_events()));
  for (auto& x : checkpoints_.registry().all())
    if (x.index >= first)
      result.push_back(x);
  return result;
}

std::vector<kept_checkpoint> run_store::checkpoints() const {
  std::lock_guard guard{checkpoints_mutex_};
  return checkpoints_.registry().all();
}

checkpoint_page run_store::checkpoints(std::uint64_t first,
                                       std::size_t max_bytes) const {
  std::lock_guard guard{checkpoints_mutex_};
  return checkpoints_.registry().page(first, max_bytes);
}

expected<std::optional<kept_checkpoint>>
run_store::find_checkpoint(const std::string& name) {
  std::lock_guard guard{checkpoints_mutex_};
  std::optional<kept_checkpoint> result;
  if (auto found = checkpoints_.registry().find(name)) {
    result = *found;
    return result;
  }
  auto free = checkpoints_.make_room(name);
  if (auto events = checkpoints_.take_events(); !events.empty())
    (void) note_events(std::move(events));
  return free.map([&] { return result; });
}

expected<kept_result> run_store::finish(run_status_kind status,
                                        std::optional<run_error> error) {
  sync_.stop();
  auto outcome = store_end(status, std::move(error));
  (void) start_sync(); // Without a thread left, `release` syncs.
  // Takes seconds, which a preempted run may not have: its end is stored.
  (void) folder_->end_remaining_processes(note_);
  return outcome;
}

expected<kept_result> run_store::store_end(run_status_kind status,
                                           std::optional<run_error> error) {
  auto append_end = [&] {
    return append_ours([&] {
      return journal_->append_event("run_ended", attempt_,
                                    end_fields(status, error));
    });
  };
  // Before the state: the next start resumes an unfinished run and completes
  // its journal, but leaves a finished one alone.
  auto written = append_end();
  auto noted = written.and_then([&] { return journal_->sync(); });
  std::lock_guard guard{checkpoints_mutex_};
  // A run whose end could not be written has not finished; the next start
  // resumes. Of two ends in the journal, the last one counts.
  auto refute = [&](const troupe::error& problem) {
    if (status != run_status_kind::finished)
      return;
    status = run_status_kind::errored;
    error = make_run_error(problem);
    if (written)
      (void) append_end().and_then([&] { return journal_->sync(); });
  };
  // A run that another driver has taken has not ended.
  if (auto ours = seen(folder_->check_all()); !ours) {
    refute(ours.error());
    return tl::unexpected{ours.error()};
  }
  if (!noted)
    refute(noted.error());
  checkpoints_.note_failures(failures());
  if (status == run_status_kind::finished)
    checkpoints_.note_stop(stop_reason());
  // Even if the journal is broken: the state says how the run ended.
  auto saved =
    seen(checkpoints_.finish(status, error, journal_->next_report()));
  if (!saved) {
    refute(saved.error());
    return tl::unexpected{saved.error()};
  }
  if (auto events = checkpoints_.take_events(); !events.empty())
    (void) note_events(std::move(events));
  if (!noted)
    return tl::unexpected{noted.error()};
  return make_result(checkpoints_.state(), path(), last_metrics());
}

kept_result run_store::current_result() const {
  std::lock_guard guard{checkpoints_mutex_};
  return make_result(checkpoints_.state(), path(), last_metrics());
}

std::vector<store_event> run_store::take_events() {
  std::lock_guard guard{notes_mutex_};
  return std::exchange(events_, {});
}

} // namespace troupe::internal
