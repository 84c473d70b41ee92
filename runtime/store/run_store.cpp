#include "troupe/runtime/store/run_store.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/store/run_recovery.hpp"
#include "troupe/runtime/store/saved_run.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How long an attempt waits for ranks on hosts that are known to be lost.
/// The ranks of other hosts, and what they have left, are gone by then.
constexpr auto lost_host_patience = std::chrono::seconds{1};

} // namespace

expected<void> run_store::note_events(std::vector<store_event> events) {
  for (auto& x : events) {
    if (!x.stored)
      TROUPE_TRY_VOID(append_ours(
        [&] { return journal_->append_event(x.kind, attempt_, x.fields); }));
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

// A request that cannot be read is tried again by the next call.
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
  // While an abandoned commit still runs, held checkpoints are left to the next
  // start, which removes them.
  if (std::unique_lock idle{checkpoints_mutex_, std::try_to_lock})
    try {
      checkpoints_.remove_held();
    } catch (...) { // No memory: the next start removes them.
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

void run_store::expect_lost_hosts(
  std::chrono::milliseconds lost_after) noexcept {
  lost_after_ = lost_after;
  if (!earlier_agents_patience_)
    earlier_agents_patience_ = patience_of_agents(lost_after);
}

std::string run_store::abandoned_hosts(std::chrono::milliseconds waited) const {
  std::lock_guard guard{notes_mutex_};
  if (lost_hosts_.empty())
    return earlier_agents_patience_ && waited >= *earlier_agents_patience_
             ? std::string{hosts_of_earlier_driver}
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
  if (earlier_agents_patience_)
    limit = std::max(limit, 2 * *earlier_agents_patience_);
  TROUPE_TRY_VOID(
    folder_->await_ranks(limit, is_over, note_, [this](auto waited) {
      return abandoned_hosts(waited);
    }));
  {
    std::lock_guard noted{notes_mutex_};
    earlier_agents_patience_.reset();
    lost_hosts_.clear();
  }
  checkpoints_.note_failures(failures());
  checkpoints_.note_lost_after(lost_after_);
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
           return journal_->append_event(event_kind::attempt_begun, attempt,
                                         fields);
         })
    .map([&] {
      appended_();
      return std::move(result);
    });
}

void run_store::show_start(const attempt_start& x) {
  if (!x.resume && x.first_report == 0)
    return; // There is nothing to resume.
  auto text = concat("attempt ", x.attempt, " resumes after ",
                     counted(x.first_report, "report"));
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
  TROUPE_TRY_VOID(append_ours([&] {
    return journal_->append_batch(attempt, batch, checkpoint, checkpoint_s);
  }));
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
      return journal_->append_event(event_kind::run_ended, attempt_,
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
  auto save = [&] {
    auto is_finished = status == run_status_kind::finished;
    checkpoints_.note_stop(is_finished ? stop_reason() : std::string{});
    checkpoints_.note_unsynced_journal(journal_->sync_failed());
    return seen(checkpoints_.finish(status, error, journal_->next_report()));
  };
  // Even if the journal is broken: the state says how the run ended.
  auto saved = save();
  if (!saved) {
    auto was_to_finish = status == run_status_kind::finished;
    refute(saved.error());
    if (was_to_finish) // The state that says so may be in place.
      (void) save();
    return tl::unexpected{saved.error()};
  }
  if (auto events = checkpoints_.take_events(); !events.empty())
    (void) note_events(std::move(events));
  if (!noted)
    return tl::unexpected{noted.error()};
  return make_result(checkpoints_.state(), path(), last_metrics());
}

expected<void> run_store::note_given_up(run_status_kind status,
                                        const std::optional<run_error>& error) {
  std::lock_guard guard{checkpoints_mutex_};
  if (checkpoints_.state().status != run_status_kind::running)
    return {};
  TROUPE_TRY_VOID(seen(folder_->check_all()));
  checkpoints_.note_failures(failures());
  checkpoints_.note_unsynced_journal(journal_->sync_failed());
  TROUPE_TRY_VOID(
    seen(checkpoints_.finish(status, error, journal_->next_report())));
  return note_events(checkpoints_.take_events());
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
