#include "troupe/runtime/checkpoint/checkpoint_store.hpp"

#include <algorithm>

#include "troupe/runtime/checkpoint/checkpoint_name.hpp"
#include "troupe/runtime/checkpoint/commit_folder.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/checkpoint/staging.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/report/check_parts.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr const char* evicted_prefix = ".evicted-";
constexpr const char* rotten_prefix = ".rotten-";

using manifests = std::vector<std::pair<std::string, manifest>>;

bool has_prefix(const std::string& name, const char* prefix) {
  return name.starts_with(prefix);
}

// Whether the checkpoint is whole and the one that the state means.
expected<void> verify(const reported_checkpoint& x,
                      const std::string& run_name) {
  auto found = read_manifest(x.data.path());
  if (!found)
    return tl::unexpected{found.error()};
  if (found->index != x.index || found->attempt != x.attempt
      || found->run_name != run_name)
    return failure(
      ec::corrupt,
      x.data.path().string() + " holds report " + std::to_string(found->index)
        + " of attempt " + std::to_string(found->attempt) + " of run '"
        + found->run_name + "', the run's state says report "
        + std::to_string(x.index) + " of attempt " + std::to_string(x.attempt));
  return verify_files(x.data.path(), *found);
}

} // namespace

checkpoint_store::checkpoint_store(fs::path run_path, std::string run_name,
                                   const checkpoint_config& config,
                                   saved_run state)
  : run_path_(std::move(run_path)), run_name_(std::move(run_name)),
    state_(std::move(state)), registry_(config, state_.checkpoints) {
  state_.retention = config;
}

expected<checkpoint_store>
checkpoint_store::open(fs::path run_path, std::string run_name,
                       const checkpoint_config& config, saved_run state) {
  checkpoint_store result{std::move(run_path), std::move(run_name), config,
                          std::move(state)};
  if (auto ok = result.recover(); !ok)
    return tl::unexpected{ok.error()};
  return result;
}

expected<void> checkpoint_store::recover() {
  if (auto ok = make_folders(folder()); !ok)
    return ok;
  manifests unknown;
  boost::system::error_code code;
  for (fs::directory_iterator i{folder(), code}, end; !code && i != end;
       i.increment(code)) {
    auto name = i->path().filename().string();
    if (has_prefix(name, staging_prefix) || has_prefix(name, evicted_prefix)) {
      if (auto ok = remove_tree(i->path()); !ok)
        return ok;
    } else if (!has_prefix(name, rotten_prefix) && !registry_.find(name)) {
      if (auto x = read_manifest(i->path()))
        unknown.emplace_back(std::move(name), std::move(*x));
      else
        note("checkpoint_unknown", name, x.error().message);
    }
  }
  if (code)
    return tl::unexpected{storage_error("list", folder(), code.value())};
  std::ranges::sort(unknown, {}, [](auto& x) { return x.second.index; });
  for (auto& [name, x] : unknown)
    if (auto ok = recover_unknown(name, x); !ok)
      return ok;
  return save(registry_);
}

expected<void> checkpoint_store::recover_unknown(const std::string& name,
                                                 const manifest& x) {
  auto path = folder() / name;
  auto found = reported_checkpoint{checkpoint::from_directory(path), x.values,
                                   x.index, x.attempt};
  auto latest = registry_.latest();
  if (latest && x.index <= latest->index) {
    note("checkpoint_removed", name, "retention had let it go before a crash");
    return remove_tree(path);
  }
  if (auto ok = verify(found, run_name_); !ok)
    return ok.error().code == ec::corrupt ? set_aside(name, ok.error()) : ok;
  note("checkpoint_adopted", name, "a crash came before the state was saved");
  auto registry = registry_;
  return registry.add(std::move(found)).and_then([&](const auto& evicted) {
    return save(registry).map([&] { evict(evicted); });
  });
}

expected<void> checkpoint_store::save(const checkpoint_registry& registry) {
  auto next = state_;
  next.checkpoints = registry.all();
  if (auto latest = registry.latest()) {
    next.next_report = std::max(next.next_report, latest->index + 1);
    next.next_attempt = std::max(next.next_attempt, latest->attempt + 1);
  }
  if (auto ok = save_run(next, run_path_); !ok)
    return ok;
  state_ = std::move(next);
  registry_ = registry;
  return {};
}

expected<reported_checkpoint>
checkpoint_store::commit(std::uint64_t attempt, const report_batch& batch) {
  auto name = batch.checkpoint_name();
  if (!name)
    return failure(ec::invalid_argument, "report " + std::to_string(batch.index)
                                           + " has no checkpoint to commit");
  if (attempt + 1 != state_.next_attempt)
    return failure(ec::stopped, "checkpoint '" + *name + "' comes from attempt "
                                  + std::to_string(attempt) + ", but attempt "
                                  + std::to_string(state_.next_attempt - 1)
                                  + " has begun");
  if (auto ok = check_parts(batch); !ok)
    return tl::unexpected{ok.error()};
  if (auto ok = validate_checkpoint_name(*name); !ok)
    return tl::unexpected{ok.error()};
  reported_checkpoint result{checkpoint::from_directory(folder() / *name),
                             batch.values.empty() ? metrics{} : batch.values[0],
                             batch.index, attempt};
  auto registry = registry_;
  auto evicted = registry.add(result);
  if (!evicted)
    return tl::unexpected{evicted.error()};
  manifest description{run_name_, attempt, batch.index, result.values, {}};
  if (auto ok = commit_folder(run_path_, batch, std::move(description)); !ok)
    return tl::unexpected{ok.error()};
  if (auto ok = save(registry); !ok) {
    // Never acknowledged: take it back. The state on disk may already name it.
    (void) remove_tree(result.data.path());
    (void) save_run(state_, run_path_);
    return tl::unexpected{ok.error()};
  }
  failpoint("commit.state_saved");
  evict(*evicted);
  return result;
}

void checkpoint_store::evict(const std::vector<reported_checkpoint>& old) {
  for (auto& x : old) {
    // Under another name first: half a checkpoint must not look like one.
    auto name = x.data.name();
    auto doomed = folder() / (evicted_prefix + name);
    auto done = rename_new(x.data.path(), doomed).and_then([&] {
      failpoint("commit.evicting");
      return remove_tree(doomed);
    });
    if (!done)
      note("checkpoint_not_removed", name, done.error().message);
  }
}

expected<void> checkpoint_store::set_aside(const std::string& name,
                                           const error& reason) {
  note("checkpoint_rotten", name, reason.message);
  auto registry = registry_;
  if (registry.remove(name))
    if (auto ok = save(registry); !ok)
      return ok;
  auto found = look_up_link(folder() / name);
  if (!found)
    return tl::unexpected{found.error()};
  if (!found->exists())
    return {};
  auto aside = folder() / (rotten_prefix + name);
  return remove_tree(aside).and_then(
    [&] { return rename_new(folder() / name, aside); });
}

expected<std::optional<reported_checkpoint>>
checkpoint_store::resume_checkpoint() {
  while (auto latest = registry_.latest()) {
    auto x = *latest;
    auto whole = verify(x, run_name_);
    if (whole)
      return x;
    // Only what is known to be damaged is set aside; a disk that can not be
    // read now may be back later.
    if (whole.error().code != ec::corrupt)
      return tl::unexpected{whole.error()};
    if (auto ok = set_aside(x.data.name(), whole.error()); !ok)
      return tl::unexpected{ok.error()};
  }
  return std::optional<reported_checkpoint>{};
}

expected<std::uint64_t>
checkpoint_store::begin_attempt(std::uint64_t next_report) {
  auto next = state_;
  next.status = run_status_kind::running;
  next.error.reset();
  next.next_report = std::max(next.next_report, next_report);
  auto attempt = next.next_attempt++;
  if (auto ok = save_run(next, run_path_); !ok)
    return tl::unexpected{ok.error()};
  state_ = std::move(next);
  // What ranks of earlier attempts left. A failure is no reason not to start.
  if (auto ok = drop_staging(); !ok)
    note("staging_not_removed", folder().string(), ok.error().message);
  return attempt;
}

expected<void> checkpoint_store::finish(run_status_kind status,
                                        const std::optional<run_error>& error,
                                        std::uint64_t next_report) {
  auto next = state_;
  next.status = status;
  next.error = error;
  next.next_report = std::max(next.next_report, next_report);
  if (auto ok = save_run(next, run_path_); !ok)
    return ok;
  state_ = std::move(next);
  return drop_staging();
}

expected<void> checkpoint_store::drop_staging() {
  std::vector<fs::path> doomed;
  boost::system::error_code code;
  for (fs::directory_iterator i{folder(), code}, end; !code && i != end;
       i.increment(code))
    if (has_prefix(i->path().filename().string(), staging_prefix))
      doomed.push_back(i->path());
  if (code)
    return tl::unexpected{storage_error("list", folder(), code.value())};
  for (auto& path : doomed)
    if (auto ok = remove_tree(path); !ok)
      return ok;
  return {};
}

std::vector<store_event> checkpoint_store::take_events() {
  return std::exchange(events_, {});
}

void checkpoint_store::note(std::string kind, const std::string& name,
                            const std::string& reason) {
  events_.push_back({std::move(kind), {{"name", name}, {"reason", reason}}});
}

} // namespace troupe
