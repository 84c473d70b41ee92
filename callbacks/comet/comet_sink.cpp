#include "troupe/callbacks/comet/comet_sink.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "troupe/callbacks/comet/comet.hpp"
#include "troupe/callbacks/comet/comet_archive.hpp"
#include "troupe/callbacks/comet/comet_rest.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

using failure_kind = sink_failure::kind;

// The state of the backend in what `state()` returned; empty if there is none
// or if it is of another mode.
expected<std::string> backend_state(const std::string& state, comet_mode mode) {
  if (state.empty())
    return std::string{};
  return json::read<std::string>(
    state, "the state of tracker comet", [&](const json::document& in) {
      auto is_same = in.at("mode").get<std::string>() == option_name(mode);
      return is_same ? in.at("backend").get<std::string>() : std::string{};
    });
}

/// The file that *x*, a logged image or artifact, names.
const fs::path& file_of(const tracker_record& x) {
  if (auto image = std::get_if<logged_image>(&x.content))
    return image->file;
  return std::get<logged_artifact>(x.content).path;
}

} // namespace

comet_sink::comet_sink(comet_options options)
  : options_(std::move(options)), messages_(options_) {}

std::string comet_sink::options() const {
  return options_json(options_);
}

expected<void> comet_sink::check(const tracked_run& run) const {
  TROUPE_TRY_VOID(make_comet_settings(options_, run));
  return {};
}

std::string comet_sink::state() const {
  return json::document{{"mode", option_name(mode_)},
                        {"backend", backend_ ? backend_->state() : ""}}
    .dump();
}

std::vector<std::string> comet_sink::take_notes() {
  auto result = backend_ ? backend_->take_notes() : std::vector<std::string>{};
  std::ranges::move(std::exchange(notes_, {}), std::back_inserter(result));
  return result;
}

sink_result comet_sink::start(const tracked_run& run,
                              const std::string& state) {
  auto settings = make_comet_settings(options_, run);
  if (!settings)
    return sink_fails(failure_kind::permanent, settings.error());
  auto inner = backend_state(state, settings->mode);
  if (!inner)
    return sink_fails(failure_kind::permanent, inner.error());
  // After a start that failed halfway, do not create a second experiment.
  if (!backend_ || run_id_ != run.id || mode_ != settings->mode
      || !inner->empty()) {
    mode_ = settings->mode;
    run_id_ = run.id;
    greeted_ = !inner->empty();
    greeting_.clear();
    refused_ = 0;
    notes_.clear();
    if (mode_ == comet_mode::online)
      backend_ = std::make_unique<comet_rest>(*settings, options_.tags, run);
    else
      backend_ = std::make_unique<comet_archive>(*settings, options_.tags, run);
  }
  left_.clear();
  taken_until_.reset();
  TROUPE_TRY_VOID(backend_->start(*inner));
  if (mode_ == comet_mode::offline && !options_.mode
      && !std::exchange(announced_, true))
    notes_.push_back(
      // Without a colon after the key: what is shown is redacted.
      "COMET_API_KEY is not set and ~/.comet.config has no api_key, so the "
      "experiment is written to an archive. With a key run: comet upload '"
      + static_cast<comet_archive&>(*backend_).path().string() + "'");
  return greet(run);
}

sink_result comet_sink::greet(const tracked_run& run) {
  if (greeted_)
    return {};
  if (greeting_.empty()) {
    auto time = unix_ms(run.start_time);
    auto name = make_comet_settings(options_, run)->name;
    greeting_ = comet_messages::parameters(run.config, time);
    greeting_.push_back(
      {comet_message::kind::other, "Name", name, std::nullopt, time});
    for (auto& [key, value] : run.tags)
      greeting_.push_back(
        {comet_message::kind::other, key, value, std::nullopt, time});
  }
  while (!greeting_.empty()) {
    auto ok = backend_->send(greeting_);
    if (ok)
      break;
    auto sent = std::exchange(ok.error().accepted, 0);
    greeting_.erase(greeting_.begin(),
                    greeting_.begin() + static_cast<std::ptrdiff_t>(sent));
    if (ok.error().what != failure_kind::rejected || greeting_.empty())
      return ok;
    auto& refused = greeting_.front();
    auto is_parameter = refused.what == comet_message::kind::parameter;
    if (++refused_ == 1)
      notes_.push_back(concat("Comet refuses the ",
                              is_parameter ? "parameter '" : "other '",
                              refused.name, "': ", ok.error().reason.message));
    greeting_.erase(greeting_.begin());
  }
  if (refused_ > 1)
    notes_.push_back(concat("Comet refuses ", refused_ - 1,
                            " more of the run's parameters and others"));
  greeting_.clear();
  greeted_ = true;
  return {};
}

// Converts each record once: messages_ leaves out texts that have not changed.
expected<void> comet_sink::prepare(std::span<const tracker_record> records) {
  for (auto& x : records) {
    if (left_.contains(x.end))
      continue;
    TROUPE_TRY(auto messages, messages_.of(x));
    left_[x.end] = std::move(messages);
  }
  return {};
}

// Points that wait because Comet was away are all sent, as fast as it allows.
void comet_sink::thin_out(std::span<const tracker_record> records) {
  std::ptrdiff_t total = 0;
  for (auto& x : records)
    if (auto messages = left_.find(x.end); messages != left_.end())
      total += std::ranges::count(messages->second, comet_message::kind::metric,
                                  &comet_message::what);
  // Each record has the time since the one before it, the first one, too.
  auto begin = taken_until_.value_or(records.front().time);
  auto room = backend_->room(records.back().time - begin);
  if (static_cast<std::size_t>(total) > room
      && keep_latest_points(left_, records.back().end)
      && !std::exchange(thinned_, true))
    notes_.push_back("the run reports more points than Comet's limit of calls "
                     "per minute allows: of those that wait, it gets the "
                     "latest of each metric");
}

sink_result comet_sink::log(std::span<const tracker_record> records) {
  std::size_t accepted = 0;
  auto prepared = prepare(records);
  thin_out(records);
  for (auto& x : records) {
    auto messages = left_.find(x.end);
    if (messages == left_.end()) {
      auto failed = unreadable_file(file_of(x), prepared.error());
      failed.accepted = accepted;
      return tl::unexpected{std::move(failed)};
    }
    auto& list = messages->second;
    if (auto ok = backend_->send(list); !ok) {
      list.erase(list.begin(),
                 list.begin()
                   + static_cast<std::ptrdiff_t>(ok.error().accepted));
      ok.error().accepted = accepted;
      return ok;
    }
    left_.erase(messages);
    taken_until_ = x.time;
    ++accepted;
  }
  // Those of a larger batch that failed stay: they are not converted again.
  left_.erase(left_.begin(), left_.upper_bound(records.back().end));
  return {};
}

expected<std::optional<offline_files>>
comet_sink::offline(const tracked_run& run) const {
  TROUPE_TRY(auto settings, make_comet_settings(options_, run));
  TROUPE_TRY(auto archives, comet_archives(settings));
  if (archives.empty())
    return std::nullopt;
  std::string names;
  for (auto& x : archives)
    names += " '" + x.string() + '\'';
  auto wanted = options_.mode == comet_mode::offline;
  auto why = wanted ? "the mode is offline"
             : settings.api_key.empty()
               ? "COMET_API_KEY is not set and ~/.comet.config has no api_key"
               : "the run had no COMET_API_KEY";
  return offline_files{concat("written to", names, ", not uploaded: ", why,
                              "; next: COMET_API_KEY=<key> comet upload", names,
                              ", then remove them"),
                       wanted};
}

sink_result comet_sink::finish(run_status_kind status,
                               std::chrono::system_clock::time_point time) {
  comet_message end{comet_message::kind::other, "troupe.status",
                    std::string{to_string(status)}, std::nullopt,
                    unix_ms(time)};
  TROUPE_TRY_VOID(backend_->send({&end, 1}));
  return backend_->finish(time);
}

} // namespace troupe::internal

namespace troupe {

std::shared_ptr<tracker> comet_tracker(comet_options options,
                                       tracker_options tracking) {
  return internal::make_tracker<internal::comet_sink>(std::move(options),
                                                      tracking);
}

} // namespace troupe
