#include "troupe/runtime/store/run_store.hpp"

#include <fcntl.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/file_copy.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_recovery.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

tl::unexpected<error> already_finished(const fs::path& folder) {
  return failure(
    ec::conflict,
    "the run " + folder.string()
      + " has finished: choose another run.name, run.if_finished = "
        "number or replace, or remove that folder; "
        "result::from_path reads what it left");
}

metrics first_values(std::optional<journaled_batch> x) {
  return x && !x->values.empty() ? std::move(x->values[0]) : metrics{};
}

struct next_attempt {
  std::uint64_t number = 0;
  bool has_finished = false; ///< The run has: there is no next one.
};

// Asked before anything is written: a finished run stays as it is, and so does
// one whose state cannot be read now.
expected<next_attempt> next_attempt_of(run_folder& folder) {
  auto saved = folder.load_state();
  if (!saved && saved.error().code != ec::corrupt)
    return tl::unexpected{saved.error()};
  if (!saved || !*saved)
    return next_attempt{};
  return next_attempt{(*saved)->next_attempt,
                      (*saved)->status == run_status_kind::finished};
}

// Removes the run *name*, if it has finished and no driver has it. It leaves
// its name at once: a crash leaves no half of a run under it, and the next call
// removes the rest.
expected<void> remove_finished(const fs::path& storage,
                               const std::string& name) {
  TROUPE_TRY(auto folder, run_folder::open(storage, name));
  TROUPE_TRY(auto next, next_attempt_of(*folder));
  if (!next.has_finished)
    return {};
  auto above = folder->path().parent_path();
  auto prefix = concat(replaced_prefix, name, '-');
  TROUPE_TRY_VOID(
    folder->move_aside(fs::unique_path(prefix + "%%%%%%%%").string()));
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

// What a sync could not write stays in memory until the machine is short of it,
// and later syncs of the same file succeed without it.
expected<void> write_journal_again(const run_folder& folder) {
  auto& files = folder.files();
  // A start that was killed here has left its copy, under a name that no one
  // else removes.
  TROUPE_TRY(auto names, files.names());
  for (auto& name : names)
    if (is_unfinished_copy(files.path() / name))
      TROUPE_TRY_VOID(files.remove_file(name));
  TROUPE_TRY(auto found, files.look_up_link(run_layout::journal));
  if (!found.exists())
    return {};
  auto path = folder.journal_file();
  TROUPE_TRY(auto file, files.open_file(run_layout::journal, O_RDONLY, "open"));
  TROUPE_TRY_VOID(replace_by_copy(
    file, path, {files.descriptor().get(), run_layout::journal, path},
    copy_sync::yes));
  return files.sync();
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

std::string name_of(const run_folder& folder) {
  return folder.path().filename().string();
}

// What the store writes goes through *files*, which refuses a driver that has
// lost the run.
expected<checkpoint_store> open_checkpoints(run_folder& files, journal& log,
                                            const run_description& description,
                                            const checkpoint_config& config,
                                            saved_run state) {
  TROUPE_TRY(auto held, files.files().duplicate());
  auto save = [&files](const saved_run& x) { return files.save_state(x); };
  auto note = [&files, &log](const store_event& x, std::uint64_t attempt) {
    return files.check().and_then(
      [&] { return log.append_event(x.kind, attempt, x.fields); });
  };
  return checkpoint_store::open(std::move(held),
                                {name_of(files), description.id,
                                 description.id_is_new, description.former_ids},
                                config, std::move(state), std::move(save),
                                std::move(note),
                                [&files] { return files.check_all(); });
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
                std::size_t world_size, const taken_listener& on_taken) {
  auto name = config.name.value_or("");
  for (auto number = 2;; ++number) {
    TROUPE_TRY(auto folder, config.name
                              ? run_folder::open(config.storage_path, name)
                              : run_folder::open_new(config.storage_path));
    auto path = folder->path();
    TROUPE_TRY(auto result, open(std::move(folder), config, config_text,
                                 world_size, on_taken));
    if (result)
      return result;
    if (!config.name || config.if_finished == if_finished::refuse)
      return already_finished(path);
    if (config.if_finished == if_finished::replace)
      TROUPE_TRY_VOID(remove_finished(config.storage_path, name));
    else
      name = concat(*config.name, '-', number);
  }
}

expected<std::unique_ptr<run_store>>
run_store::open(std::unique_ptr<run_folder> folder, const run_config& config,
                const std::string& config_text, std::size_t world_size,
                const taken_listener& on_taken) {
  auto& files = *folder;
  TROUPE_TRY(auto next, next_attempt_of(files));
  if (next.has_finished)
    return nullptr;
  TROUPE_TRY_VOID(take(files, next.number));
  if (on_taken)
    TROUPE_TRY_VOID(on_taken());
  // Until now another driver could write.
  auto saved = files.load_state();
  if (!saved && saved.error().code != ec::corrupt)
    return tl::unexpected{saved.error()};
  if (saved && *saved && (*saved)->journal_unsynced)
    TROUPE_TRY_VOID(write_journal_again(files));
  TROUPE_TRY(auto log, open_journal(files));
  TROUPE_TRY(auto found,
             find_state(files.journal_file(), *log, std::move(saved)));
  found.state.journal_unsynced = false;
  TROUPE_TRY(auto description,
             describe_run(files.files(), name_of(files), config_text));
  TROUPE_TRY(auto checkpoints,
             open_checkpoints(files, *log, description, config.checkpoint,
                              std::move(found.state)));
  auto events = std::move(found.events);
  TROUPE_TRY(auto completed, complete_journal(*log, checkpoints));
  TROUPE_TRY(auto latest, read_last_attempt(files.journal_file()));
  TROUPE_TRY(auto ended, complete_end(*log, latest, checkpoints.state()));
  if (checkpoints.state().status == run_status_kind::finished) {
    // Its state is rebuilt now.
    for (auto& x : events)
      TROUPE_TRY_VOID(log->append_event(x.kind, 0, x.fields));
    return nullptr;
  }
  TROUPE_TRY(auto last, read_last_batch(files.journal_file()));
  auto changed = changes_since(
    {checkpoints.state().next_attempt, last ? last->values.size() : 0},
    description, world_size);
  for (auto* more : {&completed, &ended, &changed})
    std::ranges::move(*more, std::back_inserter(events));
  description.former_ids = checkpoints.former_ids();
  TROUPE_TRY_VOID(save_description(files.files(), description));
  std::unique_ptr<run_store> result{
    new run_store{std::move(folder), std::move(log), std::move(checkpoints),
                  std::move(description)}};
  result->last_metrics_ = first_values(std::move(last));
  result->start_timeout_ = config.start_timeout;
  TROUPE_TRY_VOID(result->begin(std::move(latest), std::move(events)));
  return result;
}

expected<void> run_store::begin(last_attempt latest,
                                std::vector<store_event> events) {
  checkpoints_.hold_from([this] { return held_from_.load(); });
  auto& state = checkpoints_.state();
  attempt_ = state.next_attempt;
  if (state.lost_after_ms > 0)
    earlier_agents_patience_ =
      patience_of_agents(std::chrono::milliseconds{state.lost_after_ms});
  failures_ = failures_of(state, latest);
  stop_reason_ = std::move(latest.stop_reason);
  was_interrupted_ =
    latest.failure || (latest.end && latest.end->kind == event_kind::run_ended);
  TROUPE_TRY_VOID(note_events(journal_->events()));
  TROUPE_TRY_VOID(note_events(std::move(events)));
  TROUPE_TRY_VOID(note_events(checkpoints_.take_events()));
  return start_sync();
}

} // namespace troupe::internal
