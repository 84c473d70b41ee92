// What a start does with the checkpoints that it finds: those that the state
// does not name, those that are damaged, and those that were evicted.

#include <algorithm>

#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/store/checkpoint_store.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How many rotten checkpoints stay for a look at them.
constexpr std::size_t max_rotten = 3;

using manifests = std::vector<std::pair<std::string, manifest>>;

} // namespace

expected<manifest> checkpoint_store::verify(const std::string& name,
                                            std::uint64_t index,
                                            std::uint64_t attempt) const {
  TROUPE_TRY(auto found, read_manifest(checkpoints_, name));
  if (found.index != index || found.attempt != attempt)
    return failure(ec::corrupt,
                   concat((checkpoints_.path() / name).string(),
                          " holds report ", found.index, " of attempt ",
                          found.attempt, ", the run's state says report ",
                          index, " of attempt ", attempt));
  return verify_files(checkpoints_, name, found).map([&] {
    return std::move(found);
  });
}

expected<void> checkpoint_store::recover() {
  drop(run_layout::staging_prefix);
  TROUPE_TRY(auto names, checkpoints_.names());
  manifests unknown;
  for (auto& name : names) {
    if (name.starts_with(run_layout::staging_prefix)
        || name.starts_with(run_layout::evicted_prefix)
        || name.starts_with(run_layout::rotten_prefix) || registry_.find(name))
      continue;
    auto x = read_manifest(checkpoints_, name);
    if (x && !is_doomed(name, *x))
      unknown.emplace_back(std::move(name), std::move(*x));
    else if (!x && x.error().code == ec::storage)
      return tl::unexpected{x.error()}; // It may be one of the run's.
    else if (!x)
      note("checkpoint_unknown", name, x.error().message);
  }
  std::ranges::sort(unknown, {}, [](auto& x) { return x.second.index; });
  for (auto& [name, x] : unknown)
    TROUPE_TRY_VOID(recover_unknown(name, x));
  return find_former_ids().and_then([this] { return save(registry_); });
}

expected<void> checkpoint_store::recover_unknown(const std::string& name,
                                                 const manifest& x) {
  auto is_copy = !is_ours(x) || (!x.name.empty() && x.name != name);
  auto latest = registry_.latest();
  if (is_copy || (latest && x.index <= latest->index)) {
    note("checkpoint_unknown", name,
         is_copy ? concat("it is a copy of checkpoint '", x.name, "' of run '",
                          x.run_name, '\'')
                 : "the run's state does not name it");
    return {};
  }
  if (auto ok = verify(name, x.index, x.attempt); !ok) {
    if (ok.error().code == ec::corrupt)
      return set_aside(name, ok.error());
    return tl::unexpected{ok.error()};
  }
  // It may have come before the commit's fsync, too: until then, retention must
  // let no other one go.
  TROUPE_TRY_VOID(checkpoints_.sync());
  note("checkpoint_adopted", name, "a crash came before the state was saved");
  auto registry = registry_;
  TROUPE_TRY(auto evicted, registry.add({handle(name), x.first_values(),
                                         x.index, x.attempt}));
  return save(std::move(registry), evicted);
}

bool checkpoint_store::is_ours(const manifest& x) const {
  // The name has to do where there is no id to compare, or it was lost.
  if (x.run_id.empty() || run_.id_is_new)
    return x.run_name == run_.name;
  return x.run_id == run_.id
         || std::ranges::find(run_.former_ids, x.run_id)
              != run_.former_ids.end();
}

expected<void> checkpoint_store::find_former_ids() {
  if (!run_.id_is_new)
    return {};
  for (auto& x : registry_.all()) {
    auto its = manifest_of(x);
    if (!its && its.error().code != ec::corrupt)
      return tl::unexpected{its.error()};
    if (its && !its->run_id.empty()
        && std::ranges::find(run_.former_ids, its->run_id)
             == run_.former_ids.end())
      run_.former_ids.push_back(its->run_id);
  }
  return {};
}

// A rank that is killed while it moves files leaves the names that it took them
// from: the next one may write to those.
expected<manifest> checkpoint_store::separate(const kept_checkpoint& x,
                                              manifest its) {
  TROUPE_TRY(auto folder, checkpoints_.existing(x.data.name()));
  TROUPE_TRY(auto shared, shared_files(folder, its.files));
  if (shared.empty())
    return its;
  auto staging = checkpoints_.make_folder(run_layout::staging_prefix
                                          + std::string{"separate"});
  auto ok = expected<void>{};
  for (auto i = shared.begin(); staging && ok && i != shared.end(); ++i)
    ok = separate_file(folder, *i, *staging);
  if (staging && ok)
    return verify(x.data.name(), x.index, x.attempt);
  // It is whole; only a writer that uses the other name could change it.
  note("checkpoint_shared", x.data.name(),
       staging ? ok.error().message : staging.error().message);
  return its;
}

expected<std::optional<reported_checkpoint>>
checkpoint_store::resume_checkpoint() {
  while (auto latest = registry_.latest()) {
    auto x = *latest;
    auto whole =
      verify(x.data.name(), x.index, x.attempt).and_then([&](manifest its) {
        return separate(x, std::move(its));
      });
    if (whole) {
      note_unlisted_files(x, *whole);
      remove_doomed(); // Not before the newest is known to be whole.
      return x.unpacked();
    }
    // Only what is known to be damaged is set aside; a disk that cannot be
    // read now may be back later.
    if (whole.error().code != ec::corrupt)
      return tl::unexpected{whole.error()};
    TROUPE_TRY_VOID(set_aside(x.data.name(), whole.error()));
  }
  return std::optional<reported_checkpoint>{};
}

expected<void> checkpoint_store::set_aside(const std::string& name,
                                           const error& reason) {
  auto rotten = held_entry::open(checkpoints_, name);
  note("checkpoint_rotten", name, reason.message);
  if (log_) {
    auto& event = events_.back();
    TROUPE_TRY_VOID(log_(event, state_.next_attempt));
    event.stored = true;
  }
  TROUPE_TRY_VOID(strike(name));
  failpoint("rotten.forgotten");
  TROUPE_TRY(auto found, checkpoints_.look_up_link(name));
  if (!found.exists())
    return {};
  if (!rotten)
    return tl::unexpected{rotten.error()};
  TROUPE_TRY_VOID(check());
  auto aside = run_layout::rotten_prefix + name;
  for (auto i = 2; i < 100; ++i) {
    auto moved = rotten->rename(aside);
    if (!moved && moved.error().code == ec::conflict) {
      aside = concat(run_layout::rotten_prefix, i, '-', name);
      continue;
    }
    failpoint("rotten.renamed");
    return moved.and_then([&] { return keep_rotten(aside); });
  }
  return failure(ec::conflict, "too many rotten checkpoints are called '" + name
                                 + "' in " + checkpoints_.path().string());
}

expected<void> checkpoint_store::keep_rotten(const std::string& name) {
  state_.rotten.push_back(name);
  while (state_.rotten.size() > max_rotten) {
    auto oldest = state_.rotten.front();
    note("checkpoint_removed", oldest,
         concat("more than ", max_rotten, " rotten ones"));
    auto gone =
      check().and_then([&] { return checkpoints_.remove_tree(oldest); });
    if (!gone)
      note("checkpoint_not_removed", oldest, gone.error().message);
    state_.rotten.erase(state_.rotten.begin());
  }
  auto saved = save(registry_);
  failpoint("rotten.kept");
  return saved;
}

expected<void> checkpoint_store::strike(const std::string& name) {
  auto registry = registry_;
  if (!registry.remove(name))
    return {};
  TROUPE_TRY(auto back, find_doomed());
  auto all = registry.all();
  for (auto& x : back) {
    note("checkpoint_reinstated", x.data.name(), "a newer one is rotten");
    all.push_back(std::move(x));
  }
  auto doomed = std::exchange(state_.doomed, {});
  auto saved = save(checkpoint_registry{state_.retention, std::move(all)});
  if (saved)
    evicted_.clear();
  else
    state_.doomed = std::move(doomed);
  return saved;
}

expected<std::vector<kept_checkpoint>> checkpoint_store::find_doomed() {
  std::vector<kept_checkpoint> result;
  for (auto& x : state_.doomed) {
    auto found = read_manifest(checkpoints_, x.name);
    if (!found && found.error().code == ec::corrupt) {
      TROUPE_TRY(auto back, recall(x));
      if (back)
        found = read_manifest(checkpoints_, x.name);
    }
    if (!found && found.error().code != ec::corrupt)
      return tl::unexpected{found.error()};
    if (found && is_doomed(x.name, *found))
      result.push_back(
        {handle(x.name), found->first_values(), x.index, x.attempt});
  }
  return result;
}

expected<std::vector<kept_checkpoint>>
checkpoint_store::hold_evicted(std::uint64_t first,
                               const std::function<bool()>& given_up) {
  std::vector<kept_checkpoint> result;
  std::vector<doomed_checkpoint> held;
  for (auto& x : state_.doomed) {
    if (x.index < first || std::ranges::find(evicted_, x) != evicted_.end())
      continue;
    if (given_up())
      return failure(ec::stopped, "the run was stopped before it began");
    auto whole = verify(x.name, x.index, x.attempt);
    if (!whole && whole.error().code == ec::corrupt) {
      TROUPE_TRY(auto back, recall(x));
      if (!back) {
        note("checkpoint_missing", x.name,
             concat("callbacks are called for report ", x.index,
                    " without it: ", whole.error().message));
        continue;
      }
    }
    // One that cannot be read now is not missing.
    held.push_back(x);
    result.push_back({handle(x.name), {}, x.index, x.attempt});
  }
  // None before all are known: what is listed here may be removed at the end.
  evicted_.insert(evicted_.end(), held.begin(), held.end());
  std::ranges::sort(result, {}, &kept_checkpoint::index);
  return result;
}

expected<bool> checkpoint_store::recall(const doomed_checkpoint& x) {
  auto name = evicted_name(x);
  auto done = verify(name, x.index, x.attempt)
                .and_then([&](auto&&) { return check(); })
                .and_then([&] {
                  return checkpoints_.rename_new(name, checkpoints_, x.name);
                })
                .and_then([&] { return checkpoints_.sync(); });
  if (done)
    return true;
  if (done.error().code == ec::corrupt || done.error().code == ec::conflict)
    return false; // It is half gone, or its name is another's now.
  return tl::unexpected{done.error()};
}

} // namespace troupe::internal
