#include "troupe/callbacks/tracking/tracker_set.hpp"

#include <set>
#include <system_error>
#include <utility>

#include "troupe/callbacks/tracking/sink_feed.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

expected<void> check_names(const tracker_list& trackers) {
  std::set<std::string> names;
  for (auto& x : trackers)
    if (auto name = x->target()->name(); !names.insert(name).second)
      return failure(ec::invalid_config, "run.trackers has two trackers named "
                                           + name + "; a run has one of each");
  return {};
}

/// The sink of each tracker; empty if an earlier run still has it.
expected<std::vector<std::shared_ptr<sink>>> take(const tracker_list& trackers,
                                                  const tracked_run& run) {
  std::vector<std::shared_ptr<sink>> result;
  for (auto& x : trackers) {
    auto target = x->take();
    if (target)
      if (auto ok = call_sink(*target, [&] { return target->check(run); }); !ok)
        return failure(ec::invalid_config, "tracker " + target->name() + ": "
                                             + redacted(ok.error().message));
    result.push_back(std::move(target));
  }
  return result;
}

} // namespace

expected<void> tracker_set::check(const tracker_list& trackers,
                                  const run_description& run,
                                  const fs::path& run_path) {
  TROUPE_TRY_VOID(check_names(trackers));
  TROUPE_TRY_VOID(take(trackers, describe_tracked_run(run, run_path)));
  return {};
}

expected<std::unique_ptr<tracker_set>>
tracker_set::start(const tracker_list& trackers, const run_description& run,
                   const fs::path& run_path, listeners to) {
  auto facts = describe_tracked_run(run, run_path);
  facts.status = to.status;
  TROUPE_TRY_VOID(check_names(trackers));
  TROUPE_TRY(auto targets, take(trackers, facts));
  std::unique_ptr<tracker_set> result{new tracker_set{std::move(to)}};
  for (std::size_t i = 0; i < trackers.size(); ++i)
    TROUPE_TRY_VOID(result->add(*trackers[i], std::move(targets[i]), facts));
  return result;
}

expected<void> tracker_set::add(const tracker& x, std::shared_ptr<sink> target,
                                tracked_run run) {
  auto name = x.target()->name();
  auto file = run.path / run_layout::sinks / (name + ".options");
  TROUPE_TRY_VOID(replace_file(file, x.target()->options()));
  if (!target) {
    left_out_.push_back("tracker " + name
                        + " still serves another run and gets no records of "
                          "this one; "
                        + who_sends_the_rest(*x.target()));
    to_.note(left_out_.back());
    return {};
  }
  try {
    threads_.push_back(std::make_unique<sink_thread>(
      std::move(target), std::move(run), x.options(), to_.note));
  } catch (const std::system_error& problem) {
    return failure(ec::spawn, "tracker " + name + ": cannot start its thread: "
                                + problem.what());
  }
  return {};
}

// A worker group may note that a host has gone while the run's rest ends.
void tracker_set::notify() noexcept {
  std::lock_guard guard{mutex_};
  for (auto& x : threads_)
    x->notify();
}

void tracker_set::abandon() {
  std::lock_guard guard{mutex_};
  for (auto& x : threads_)
    x->abandon();
}

void tracker_set::note_wait(wait_time::duration waited,
                            bool may_be_hurried) const {
  std::string names;
  for (auto& x : threads_) {
    auto left = x->options().finish_timeout - waited;
    if (left.count() > 0 && !x->has_ended())
      append_item(
        names,
        concat(x->name(), " (at most ",
               duration_text(std::chrono::ceil<std::chrono::seconds>(left)),
               " more)"));
  }
  if (!names.empty())
    to_.note(
      "the run is over and waits for trackers to finish: " + names
      + (may_be_hurried ? "; a signal, such as Ctrl-C, ends the wait" : ""));
}

std::vector<std::string>
tracker_set::finish(const std::function<bool()>& hurried, wait_time time) {
  auto result = std::exchange(left_out_, {});
  for (auto& x : threads_)
    x->close(time);
  auto noted = false;
  auto given_up = [&] {
    auto waited = time.passed();
    if (is_hurried_ || (hurried && hurried()))
      return waited >= moment;
    if (waited >= silence && !std::exchange(noted, true))
      note_wait(waited, static_cast<bool>(hurried));
    return false;
  };
  for (auto& x : threads_) {
    if (auto unsent = x->join(time, x->options().finish_timeout, given_up);
        !unsent.empty()) {
      to_.note(unsent);
      result.push_back(std::move(unsent));
    } else if (auto files = x->left_in_files(); !files.empty()) {
      result.push_back(std::move(files));
    }
  }
  std::lock_guard guard{mutex_};
  threads_.clear();
  return result;
}

} // namespace troupe::internal
