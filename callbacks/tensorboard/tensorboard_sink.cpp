#include "troupe/callbacks/tensorboard/tensorboard_sink.hpp"

#include <limits>
#include <utility>
#include <variant>

#include "troupe/callbacks/tensorboard/event_text.hpp"
#include "troupe/callbacks/tensorboard/sink_progress.hpp"
#include "troupe/callbacks/tracking/given_settings.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

using namespace tensorboard;

namespace {

// Bytes that are buffered before a write; images may be large.
constexpr std::size_t max_buffer = 8 << 20;

constexpr std::int64_t max_hparams_step =
  std::numeric_limits<std::int32_t>::max();

std::string host_of(const tracked_run& run) {
  auto result = run.tag("host");
  if (result.empty())
    return "localhost";
  for (auto& c : result)
    if (!is_letter(c) && !is_digit(c) && c != '.')
      c = '-';
  return result;
}

} // namespace

tensorboard_sink::tensorboard_sink(tensorboard_options options)
  : options_(std::move(options)) {}

std::string tensorboard_sink::options() const {
  return options_json(options_);
}

std::shared_ptr<sink> tensorboard_sink::another() const {
  auto dir = options_.log_dir.string();
  if (dir.starts_with('/') || dir.starts_with('~'))
    return nullptr;
  return std::make_shared<tensorboard_sink>(options_);
}

expected<void> tensorboard_sink::check(const tracked_run& run) const {
  if (options_.log_dir.empty())
    return failure(ec::invalid_config, "log_dir is empty: give a folder that "
                                       "no other run writes to");
  TROUPE_TRY_VOID(folder_in(run.path));
  return {};
}

sink_result tensorboard_sink::start(const tracked_run& run,
                                    const std::string& state) {
  run_ = run;
  tensorboard::sink_progress done;
  if (!state.empty()) {
    auto saved = progress_from_json(state);
    if (!saved)
      return sink_fails(sink_failure::kind::permanent, saved.error());
    done = std::move(*saved);
  }
  done_ = std::move(done);
  return file_result(open());
}

expected<fs::path> tensorboard_sink::folder_in(const fs::path& run) const {
  auto& given = options_.log_dir;
  if (!given.empty() && *given.begin() == "~")
    return given_folder(given.string(), "log_dir");
  return given.is_absolute() ? given : run / given;
}

expected<void> tensorboard_sink::open() {
  files_.reset();
  TROUPE_TRY(auto found, look_up(run_.path));
  if (!found.exists())
    return failure(ec::storage,
                   "cannot find the run's folder " + run_.path.string());
  TROUPE_TRY(auto folder, folder_in(run_.path));
  auto in_run =
    folder.lexically_normal().lexically_relative(run_.path.lexically_normal());
  auto is_private = !in_run.empty() && *in_run.begin() != "..";
  TROUPE_TRY(auto files,
             event_files::open(folder, is_private, run_.id, host_of(run_),
                               done_.place, run_.cancelled));
  files_ = std::move(files);
  expected<void> done;
  // If someone shortened or removed the file, begin a new one: the old one may
  // end in the middle of a record.
  auto shortened = files_->place().size < done_.place.size;
  if (done_.place.number == 0 || shortened) {
    std::string version;
    append_version(version, run_.start_time);
    done = files_->begin(run_.start_time)
             .and_then([&] { return files_->append(version); })
             .and_then([&] { return files_->commit(); });
  }
  done = done.and_then([&] { return write_params(done_.params); });
  if (done)
    done_.place = files_->place();
  else
    files_.reset();
  return done;
}

metrics tensorboard_sink::params_with(const metrics& logged) const {
  auto result = run_.config;
  for (const auto& [name, value] : logged)
    result[name] = value;
  return result;
}

expected<void> tensorboard_sink::write_params(const metrics& logged) {
  auto params = params_with(logged);
  if (params.empty())
    return {};
  std::string records;
  append_version(records, run_.start_time);
  if (!options_.hparams_metrics.empty())
    append_experiment(records, run_.start_time, run_.name, params,
                      options_.hparams_metrics);
  append_session_start(records, run_.start_time, run_.name, params);
  return files_->replace_params(run_.start_time, records);
}

sink_result tensorboard_sink::log(std::span<const tracker_record> records) {
  if (!files_)
    if (auto done = open(); !done)
      return file_result(done);
  auto now = done_;
  std::string out;
  std::size_t taken = 0;
  sink_result result;
  for (; taken < records.size(); ++taken) {
    result = take(records[taken], out, now);
    if (!result)
      break;
  }
  if (!result && result.error().what != sink_failure::kind::rejected) {
    files_.reset();
    return result;
  }
  // Records before a rejected one are kept.
  if (auto done = write_out(out).and_then([&] { return files_->commit(); });
      !done)
    return fail(done.error());
  now.place = files_->place();
  done_ = std::move(now);
  if (!result)
    result.error().accepted = taken;
  return result;
}

sink_result tensorboard_sink::fail(const error& reason) {
  files_.reset();
  return file_result(tl::unexpected{reason});
}

sink_result tensorboard_sink::take(const tracker_record& record,
                                   std::string& out, sink_progress& now) {
  if (const auto* attempt = std::get_if<attempt_record>(&record.content))
    return file_result(begin_attempt(record, *attempt, out, now));
  if (const auto* params = std::get_if<logged_params>(&record.content)) {
    for (const auto& [name, value] : params->values)
      now.params[name] = value;
    return file_result(write_params(now.params));
  }
  if (step_of(record) > max_hparams_step
      && !std::exchange(warned_of_step_, true))
    notes_.push_back(
      concat("step ", step_of(record),
             " is above 2^31-1: TensorBoard's page HParams fails for this "
             "run"));
  TROUPE_TRY_VOID(append_record(out, record, options_, now));
  return out.size() < max_buffer ? sink_result{} : file_result(write_out(out));
}

expected<void> tensorboard_sink::begin_attempt(const tracker_record& record,
                                               const attempt_record& attempt,
                                               std::string& out,
                                               sink_progress& now) {
  auto step = now.steps.roll_back(attempt.first_report);
  if (!std::exchange(now.has_attempt, true))
    return {}; // The run's first attempt: its file is new.
  return write_out(out)
    .and_then([&] { return files_->begin(record.time); })
    .map([&] {
      append_version(out, record.time);
      append_restart(out, {record.time, step});
    });
}

expected<void> tensorboard_sink::write_out(std::string& out) {
  auto done = files_->append(out);
  out.clear();
  return done;
}

sink_result
tensorboard_sink::finish(run_status_kind status,
                         std::chrono::system_clock::time_point time) {
  // Reopening cuts off an end that was written before. The state does not
  // include the end, so a resumed run gets a new one.
  auto done = open();
  if (done && !params_with(done_.params).empty()) {
    std::string end;
    append_session_end(end, time, status);
    done = files_->append(end).and_then([&] { return files_->commit(); });
  }
  files_.reset();
  return file_result(done);
}

std::string tensorboard_sink::state() const {
  return to_json(done_);
}

} // namespace troupe::internal

namespace troupe {

std::shared_ptr<tracker> tensorboard_tracker(tensorboard_options options,
                                             tracker_options tracking) {
  return internal::make_tracker<internal::tensorboard_sink>(std::move(options),
                                                            tracking);
}

} // namespace troupe
