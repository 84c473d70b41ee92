#include "troupe/callbacks/wandb/wandb_sink.hpp"

#include <sys/utsname.h>

#include <thread>

#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/callbacks/wandb/wandb.hpp"
#include "troupe/callbacks/wandb/wandb_batch.hpp"
#include "troupe/callbacks/wandb/wandb_host.hpp"
#include "troupe/callbacks/wandb/wandb_settings.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"

namespace troupe::internal {

namespace {

using kind = sink_failure::kind;

constexpr auto stats_interval = std::chrono::seconds{10};
constexpr std::uint64_t log_header = 7; // bytes

// W&B derives a run's state from its exit code: 255 is what its own client
// reports when it is interrupted.
int exit_code_of(run_status_kind x) {
  switch (x) {
    case run_status_kind::finished:
      return 0;
    case run_status_kind::aborted:
    case run_status_kind::preempted:
      return 255;
    default:
      return 1;
  }
}

wandb_environment environment_of(const tracked_run& run) {
  utsname system{};
  ::uname(&system);
  wandb_environment result;
  result.os = std::string{system.sysname} + "-" + system.release;
  result.program = run.tag("program");
  result.host = run.tag("host");
  result.user = run.tag("user");
  result.cpus = std::thread::hardware_concurrency();
  result.memory = host_memory();
  return result;
}

sink_result transient(const error& reason) {
  return sink_fails(kind::transient, reason);
}

} // namespace

namespace json {

template <class Fields>
void fields_of(Fields& f, wandb_place& x) {
  f("fragment", x.fragment)("size", x.size)("closed", x.closed);
  f("ended", x.ended)("step", x.steps.last)("report", x.steps.report);
  f.added("attempt", x.steps.attempt);
  f.added("written_attempt", x.steps.written.first);
  f.added("written", x.steps.written.second);
  f("console", x.console);
}

} // namespace json

namespace {

/// An empty text is a sink that has written nothing.
expected<wandb_place> place_from_json(const std::string& text) {
  if (text.empty())
    return wandb_place{};
  return json::read<wandb_place>(text, "the state of tracker wandb",
                                 json::from_fields<wandb_place>);
}

} // namespace

wandb_sink::wandb_sink(wandb_options options)
  : options_(std::move(options)), upload_(options_) {}

std::string wandb_sink::options() const {
  return options_json(options_);
}

std::string wandb_sink::state() const {
  return json::open_object(place_, ",") + '}';
}

expected<void> wandb_sink::check(const tracked_run& run) const {
  TROUPE_TRY_VOID(make_wandb_settings(options_, run));
  return {};
}

sink_result wandb_sink::start(const tracked_run& run,
                              const std::string& state) {
  auto settings = make_wandb_settings(options_, run);
  if (!settings)
    return sink_fails(kind::permanent, settings.error());
  run_ = run;
  settings_ = std::move(*settings);
  if (settings_.mode == wandb_mode::disabled)
    return {};
  auto place = place_from_json(state);
  if (!place)
    return sink_fails(kind::permanent, place.error());
  place_ = *place;
  log_.reset();
  if (auto ok = repair_earlier(); !ok)
    return transient(ok.error());
  // A run that has ended gets a folder only if more is logged.
  if (place_.ended)
    return {};
  if (auto ok = open(); !ok)
    return transient(ok.error());
  return {};
}

// What was written after the saved state counts, too: it may have been uploaded
// already.
expected<void> wandb_sink::repair_earlier() {
  TROUPE_TRY(auto all, wandb_fragments(settings_.root, settings_.about.id));
  for (auto& x : all) {
    if (x.name() < place_.fragment
        || (fragment_ && x.name() == fragment_->name()))
      continue;
    auto is_known = x.name() == place_.fragment;
    if (is_known && place_.closed)
      continue;
    TROUPE_TRY_VOID(repair(x, is_known ? place_.size : log_header));
  }
  return {};
}

expected<void> wandb_sink::repair(const wandb_fragment& x, std::uint64_t from) {
  TROUPE_TRY(auto found, look_up(x.log()));
  // The process died before the first record.
  if (!found.exists() || found.size < log_header)
    return remove_tree(x.path);
  auto has_exit = false;
  auto see = [&](std::string_view record) {
    auto seen = see_wandb_record(record);
    has_exit = has_exit || seen.exit;
    place_.steps.take(seen);
  };
  TROUPE_TRY(auto log, wandb_log::reopen(x.log(), from, see, run_.cancelled));
  if (!has_exit) {
    log.append(records_.exit(exit_code_of(run_status_kind::errored),
                             std::chrono::seconds{0}));
    TROUPE_TRY_VOID(log.flush());
  }
  place_.fragment = x.name();
  place_.size = log.size();
  place_.closed = true;
  place_.ended = false; // The record added here does not know the end.
  return {};
}

// Reopens this process's log after a failure, or starts a new one.
expected<void> wandb_sink::open() {
  if (log_)
    return {};
  auto is_own = fragment_ && fragment_->name() == place_.fragment;
  if (!is_own || place_.closed)
    return begin_fragment();
  auto take = [&](std::string_view record) {
    place_.steps.take(see_wandb_record(record));
  };
  TROUPE_TRY(log_, wandb_log::reopen(fragment_->log(), place_.size, take,
                                     run_.cancelled));
  return {};
}

expected<void> wandb_sink::begin_fragment() {
  auto& about = settings_.about;
  // The first fragment is always uploaded from row 0, so that uploading it
  // twice does no harm.
  TROUPE_TRY(auto earlier, wandb_fragments(settings_.root, about.id));
  about.resume = !earlier.empty();
  TROUPE_TRY(auto fragment,
             make_wandb_fragment(settings_.root, about.id,
                                 std::chrono::system_clock::now()));
  auto log = wandb_log::create(fragment.log(), run_.cancelled);
  if (!log) {
    (void) remove_tree(fragment.path);
    return tl::unexpected{log.error()};
  }
  records_ = {};
  about.start_time = fragment.time;
  log->append(records_.header());
  log->append(records_.run(about));
  log->append(records_.environment(environment_of(run_), fragment.time));
  log_ = std::move(*log);
  fragment_ = fragment;
  auto place = place_;
  place.fragment = fragment.name();
  place.closed = place.ended = false;
  if (auto ok = flush(std::move(place)); !ok) {
    (void) remove_tree(fragment.path);
    return ok;
  }
  if (settings_.mode != wandb_mode::online)
    return {};
  earlier.push_back(fragment);
  auto left = unsynced(std::move(earlier));
  auto obstacle = upload_.obstacle(left);
  if (obstacle.empty())
    upload_.follow(left);
  else if (!std::exchange(announced_, true))
    notes_.push_back("the run stays offline: " + obstacle);
  return {};
}

sink_result wandb_sink::log(std::span<const tracker_record> records) {
  if (settings_.mode == wandb_mode::disabled)
    return {};
  if (auto ok = open(); !ok)
    return transient(ok.error());
  auto place = place_;
  wandb_batch batch{{options_, run_, *fragment_, *log_, records_}, place.steps};
  sink_result result;
  std::size_t accepted = 0;
  for (auto& record : records) {
    if (result = batch.add(record); !result)
      break;
    ++accepted;
  }
  batch.close();
  add_stats();
  add_console(place);
  if (auto ok = flush(std::move(place)); !ok)
    return transient(ok.error());
  if (!result)
    result.error().accepted = accepted;
  return result;
}

// Only in the run's own process: `troupe sync` may run on another host.
void wandb_sink::add_stats() {
  auto now = std::chrono::steady_clock::now();
  if (!options_.system_stats || !run_.status
      || (stats_time_ && now - *stats_time_ < stats_interval))
    return;
  stats_time_ = now;
  log_->append(
    records_.stats(std::chrono::system_clock::now(), stats_.sample()));
}

void wandb_sink::add_console(wandb_place& place) {
  auto name = concat(run_layout::logs, '/', log_name(0));
  if (!options_.console || !is_inside(run_.path, name).value_or(false))
    return;
  auto now = std::chrono::system_clock::now();
  const redactor clean;
  for (auto& line : read_console(run_.path / name, place.console))
    log_->append(records_.output(now, clean(line)));
}

expected<void> wandb_sink::flush(wandb_place place) {
  if (auto ok = log_->flush(); !ok) {
    log_.reset();
    return ok;
  }
  place.size = log_->size();
  place_ = std::move(place);
  return {};
}

sink_result wandb_sink::finish(run_status_kind status,
                               std::chrono::system_clock::time_point time) {
  if (settings_.mode == wandb_mode::disabled)
    return {};
  if (!place_.ended) {
    if (auto ok = open(); !ok)
      return transient(ok.error());
    auto place = place_;
    add_console(place);
    auto runtime =
      std::chrono::floor<std::chrono::seconds>(time - run_.start_time);
    log_->append(records_.exit(exit_code_of(status), runtime));
    place.closed = place.ended = true;
    if (auto ok = flush(std::move(place)); !ok)
      return transient(ok.error());
    log_.reset();
  }
  return upload_all(settings_, run_.cancelled);
}

sink_result wandb_sink::upload_all(const wandb_settings& settings,
                                   const std::stop_token& stop) {
  if (settings.mode != wandb_mode::online)
    return {};
  auto all = wandb_fragments(settings.root, settings.about.id);
  if (!all)
    return transient(all.error());
  if (!upload_.obstacle(*all).empty())
    return {}; // The user was informed.
  if (auto ok = upload_.finish(*all, stop); !ok)
    return transient(ok.error());
  return {};
}

expected<std::optional<offline_files>>
wandb_sink::offline(const tracked_run& run) const {
  TROUPE_TRY(auto settings, make_wandb_settings(options_, run));
  if (settings.mode == wandb_mode::disabled)
    return std::nullopt;
  TROUPE_TRY(auto all, wandb_fragments(settings.root, settings.about.id));
  auto left = unsynced(std::move(all));
  if (left.empty())
    return std::nullopt;
  auto wanted = settings.mode == wandb_mode::offline;
  auto why = wanted ? "the mode is offline" : upload_.obstacle(left);
  if (wanted || why.empty())
    why += "; next: " + wandb_upload::command_for(left);
  return offline_files{
    "written to " + settings.root.string() + ", not uploaded: " + why, wanted};
}

sink_result wandb_sink::upload(const tracked_run& run) {
  auto settings = make_wandb_settings(options_, run);
  if (!settings)
    return sink_fails(kind::permanent, settings.error());
  return upload_all(*settings, run.cancelled);
}

} // namespace troupe::internal

namespace troupe {

std::shared_ptr<tracker> wandb_tracker(wandb_options options,
                                       tracker_options tracking) {
  return internal::make_tracker<internal::wandb_sink>(std::move(options),
                                                      tracking);
}

} // namespace troupe
