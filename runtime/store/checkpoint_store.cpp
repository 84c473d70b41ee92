#include "troupe/runtime/store/checkpoint_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/store/commit_folder.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Bytes of a name or a text that an event shows.
constexpr std::size_t max_shown_name = 64;

/// More than any report has.
constexpr auto no_report = std::numeric_limits<std::uint64_t>::max();

/// Names that an event lists.
constexpr std::size_t max_event_names = 8;

} // namespace

checkpoint_store::checkpoint_store(held_folder folder, held_folder checkpoints,
                                   run_identity run,
                                   const checkpoint_config& config,
                                   saved_run state, save_function save,
                                   log_function log, check_function check)
  : folder_(std::move(folder)), checkpoints_(std::move(checkpoints)),
    run_(std::move(run)), state_(std::move(state)),
    registry_(config, state_.checkpoints), save_state_(std::move(save)),
    log_(std::move(log)), check_(std::move(check)) {
  state_.retention = config;
  if (!check_)
    check_ = [] { return expected<void>{}; };
}

expected<checkpoint_store> checkpoint_store::open(
  held_folder folder, run_identity run, const checkpoint_config& config,
  saved_run state, save_function save, log_function log, check_function check) {
  TROUPE_TRY(auto checkpoints, folder.folder(run_layout::checkpoints));
  checkpoint_store result{std::move(folder), std::move(checkpoints),
                          std::move(run),    config,
                          std::move(state),  std::move(save),
                          std::move(log),    std::move(check)};
  TROUPE_TRY_VOID(result.recover());
  return result;
}

expected<void> checkpoint_store::check() const {
  return check_().and_then([this] { return check_place(); });
}

expected<void> checkpoint_store::check_place() const {
  struct stat ours {};
  struct stat found {};
  auto code = folder_.look_up(run_layout::checkpoints, found);
  if (code == 0 && ::fstat(checkpoints_.descriptor().get(), &ours) != 0)
    code = errno;
  if (code != 0 && code != ENOENT)
    return tl::unexpected{storage_error("look up", checkpoints_.path(), code)};
  if (code == 0 && is_same_file(ours, found))
    return {};
  return tl::unexpected{gone_error("the run's folder", checkpoints_.path())};
}

bool checkpoint_store::is_doomed(const std::string& name,
                                 const manifest& x) const {
  return std::ranges::find(state_.doomed,
                           doomed_checkpoint{name, x.index, x.attempt})
         != state_.doomed.end();
}

expected<void>
checkpoint_store::save(checkpoint_registry registry,
                       const std::vector<kept_checkpoint>& evicted) {
  auto next = state_;
  next.checkpoints = registry.all();
  for (auto& x : evicted)
    next.doomed.push_back({x.data.name(), x.index, x.attempt});
  if (auto latest = registry.latest()) {
    next.next_report = std::max(next.next_report, latest->index + 1);
    next.next_attempt = std::max(next.next_attempt, latest->attempt + 1);
  }
  TROUPE_TRY_VOID(write_state(next));
  state_ = std::move(next);
  registry_ = std::move(registry);
  return {};
}

expected<void> checkpoint_store::write_state(const saved_run& x) {
  if (has_removed_)
    TROUPE_TRY_VOID(checkpoints_.sync());
  has_removed_ = false;
  return save_state_(x);
}

// Reads the lists of files that were too long for a message.
expected<report_batch> checkpoint_store::take_lists(std::uint64_t attempt,
                                                    report_batch batch) const {
  TROUPE_TRY(auto staging,
             checkpoints_.existing(staging_folder(attempt, batch.index)));
  for (std::size_t rank = 0; rank < batch.parts.size(); ++rank) {
    auto& part = batch.parts[rank];
    if (!part || part->listed == 0)
      continue;
    TROUPE_TRY(auto files,
               read_file_list(staging, rank_list_file(static_cast<int>(rank)),
                              part->listed));
    part->files = std::move(files);
    part->listed = 0;
  }
  return batch;
}

expected<kept_checkpoint> checkpoint_store::commit(std::uint64_t attempt,
                                                   const report_batch& batch) {
  for (auto& part : batch.parts)
    if (part && part->listed > 0)
      return take_lists(attempt, batch).and_then([&](const report_batch& x) {
        return commit(attempt, x);
      });
  auto name = batch.checkpoint_name();
  if (!name)
    return failure(
      ec::invalid_argument,
      concat("report ", batch.index, " has no checkpoint to commit"));
  if (attempt + 1 != state_.next_attempt)
    return failure(ec::stopped,
                   concat("checkpoint '", *name, "' comes from attempt ",
                          attempt, ", but attempt ", state_.next_attempt - 1,
                          " has begun"));
  TROUPE_TRY_VOID(check_parts(batch));
  TROUPE_TRY_VOID(validate_checkpoint_name(*name));
  kept_checkpoint result{
    handle(*name), batch.values.empty() ? packed_metrics{} : batch.values[0],
    batch.index, attempt};
  auto registry = registry_;
  TROUPE_TRY(auto evicted, registry.add(result));
  manifest description{run_.name,    run_.id,      *name,
                       attempt,      batch.index,  unpacked(batch.values),
                       batch.step_s, batch.wait_s, {}};
  remove_answered(); // Before the new one needs the room.
  remove_evicted([&](auto& x) { return x.name == *name; });
  // After the save as well: no state names what lies in a folder that was
  // replaced.
  TROUPE_TRY_VOID(commit_folder(checkpoints_, batch, std::move(description),
                                [this] { return check(); }));
  has_removed_ = false; // It has synced `checkpoints/`.
  TROUPE_TRY_VOID(check_place());
  // Whatever becomes of the state now, the new checkpoint stays: the state on
  // the disk may name it, and if not, the next start adopts it.
  TROUPE_TRY_VOID(save(std::move(registry), evicted));
  failpoint("commit.state_saved");
  note_unscored(result);
  for (auto& x : evicted)
    evicted_.push_back({x.data.name(), x.index, x.attempt});
  remove_answered();
  return result;
}

expected<void> checkpoint_store::make_room(const std::string& name) {
  if (registry_.find(name))
    return name_is_taken(name);
  auto first = held_from_ ? held_from_() : no_report;
  remove_evicted([&](auto& x) { return x.name == name && x.index < first; });
  if (std::ranges::find(evicted_, name, &doomed_checkpoint::name)
      != evicted_.end())
    return {}; // Callbacks may read it until `commit` takes its place.
  return checkpoints_.look_up_link(name).and_then(
    [&](const file_status& found) {
      return found.exists() ? expected<void>{name_is_taken(name)}
                            : expected<void>{};
    });
}

std::string checkpoint_store::evicted_name(const doomed_checkpoint& x) {
  return concat(run_layout::evicted_prefix, x.index, '-', x.name);
}

expected<std::string>
checkpoint_store::put_away(const doomed_checkpoint& x) const {
  auto found = held_entry::open(checkpoints_, x.name);
  TROUPE_TRY(auto its, read_manifest(checkpoints_, x.name));
  if (!found)
    return tl::unexpected{found.error()};
  if (its.index != x.index || its.attempt != x.attempt)
    return failure(ec::corrupt, (checkpoints_.path() / x.name).string()
                                  + " holds another checkpoint by now");
  auto to = evicted_name(x);
  return check().and_then([&] { return found->rename(to); }).map([&] {
    return to;
  });
}

expected<void> checkpoint_store::remove(const doomed_checkpoint& x) {
  // Under another name first: half a checkpoint must not look like one.
  auto name = put_away(x);
  if (name || name.error().code == ec::corrupt)
    std::erase(state_.doomed, x); // Saved when there is something else to save.
  if (!name)
    return tl::unexpected{name.error()};
  has_removed_ = true;
  failpoint("commit.evicting");
  if (auto ok = checkpoints_.remove_tree(*name); !ok)
    note("checkpoint_not_removed", x.name, ok.error().message);
  failpoint("commit.evicted");
  return {};
}

template <class Predicate>
void checkpoint_store::remove_evicted(const Predicate& may_remove) {
  auto all = std::exchange(evicted_, {});
  for (auto& x : all)
    if (!may_remove(x))
      evicted_.push_back(x);
    else if (auto ok = remove(x); !ok)
      note("checkpoint_not_removed", x.name, ok.error().message);
}

void checkpoint_store::remove_answered() {
  auto first = held_from_ ? held_from_() : no_report;
  remove_evicted([&](auto& x) { return x.index < first; });
}

void checkpoint_store::remove_held() {
  if (state_.status == run_status_kind::finished)
    remove_evicted([](auto&) { return true; });
  else
    remove_answered();
}

void checkpoint_store::remove_doomed() {
  drop(run_layout::evicted_prefix);
  remove_answered();
  for (auto& x : std::vector{state_.doomed}) {
    if (std::ranges::find(evicted_, x) != evicted_.end())
      continue; // Callbacks may read it.
    if (auto ok = remove(x); ok)
      note("checkpoint_removed", x.name, "retention had evicted it");
    else if (ok.error().code != ec::corrupt) // Else it is gone, or another.
      note("checkpoint_not_removed", x.name, ok.error().message);
  }
}

void checkpoint_store::note_unscored(const kept_checkpoint& x) {
  auto& config = state_.retention;
  auto& wanted = config.checkpoint_score_attribute;
  retention rule{config};
  if (has_noted_unscored_ || wanted.empty() || rule.score(x))
    return;
  has_noted_unscored_ = true;
  std::vector<std::string> numbers;
  auto values = x.values.unpacked();
  for (auto& [name, value] : values)
    if (value.is_number())
      numbers.emplace_back(cut_text(name, max_shown_name));
  auto value = values.find(wanted);
  auto any_scored = std::ranges::any_of(registry_.all(), [&](auto& other) {
    return rule.score(other).has_value();
  });
  note(
    "checkpoint_unscored", x.data.name(),
    concat("checkpoint_score_attribute is '", wanted, "', and rank 0's report ",
           value ? concat("has '", cut_text(to_string(*value), max_shown_name),
                          "' under that name, which is not a number")
                 : "has no such number",
           numbers.empty() ? "; it has none"
                           : "; it has " + listed(numbers, max_event_names),
           any_scored ? "; it ranks below those that have one"
                      : "; no checkpoint has one, so the newest are kept"));
}

void checkpoint_store::note_unlisted_files(const kept_checkpoint& x,
                                           const manifest& its) {
  auto found = unlisted_files(x.data.path(), its);
  if (!found || found->empty())
    return;
  note("checkpoint_strangers", x.data.name(),
       "its manifest does not list " + listed(*found, max_event_names));
}

expected<std::uint64_t>
checkpoint_store::begin_attempt(std::uint64_t next_report) {
  TROUPE_TRY_VOID(check_place());
  auto next = state_;
  next.status = run_status_kind::running;
  next.error.reset();
  next.next_report = std::max(next.next_report, next_report);
  auto attempt = next.next_attempt++;
  TROUPE_TRY_VOID(write_state(next));
  failpoint("attempt.state_saved");
  state_ = std::move(next);
  drop(run_layout::staging_prefix); // what ranks of earlier attempts left
  return attempt;
}

expected<void> checkpoint_store::finish(run_status_kind status,
                                        const std::optional<run_error>& error,
                                        std::uint64_t next_report) {
  // A preempted run may be killed any moment: how it ended is stored first.
  auto must_leave =
    status == run_status_kind::preempted || status == run_status_kind::aborted;
  if (!must_leave)
    remove_answered();
  auto next = state_;
  next.status = status;
  next.error = error;
  next.next_report = std::max(next.next_report, next_report);
  TROUPE_TRY_VOID(write_state(next));
  failpoint("finish.state_saved");
  state_ = std::move(next);
  if (must_leave)
    remove_answered();
  drop(run_layout::staging_prefix);
  return {};
}

void checkpoint_store::drop(const char* prefix) {
  auto names = checkpoints_.names();
  if (!names) {
    note("staging_not_removed", checkpoints_.path().string(),
         names.error().message);
    return;
  }
  if (!check()) // After the list: it has no folder of another driver.
    return;
  for (auto& name : *names)
    if (name.starts_with(prefix))
      if (auto ok = checkpoints_.remove_tree(name); !ok)
        note("staging_not_removed", name, ok.error().message);
}

std::vector<store_event> checkpoint_store::take_events() {
  return std::exchange(events_, {});
}

void checkpoint_store::note(std::string kind, const std::string& name,
                            const std::string& reason) {
  events_.push_back({std::move(kind), {{"name", name}, {"reason", reason}}});
}

} // namespace troupe::internal
