#include "troupe/callbacks/tracking/tracker_set.hpp"

#include <set>
#include <system_error>

#include "troupe/callbacks/tracking/default_trackers.hpp"
#include "troupe/callbacks/tracking/describe_tracked_run.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

using tracker_list = std::vector<std::shared_ptr<const tracker>>;

tracker_list trackers_of(const run_config& config) {
  tracker_list result;
  std::set<std::string> names;
  for (auto& callback : config.callbacks)
    if (auto x = std::dynamic_pointer_cast<const tracker>(callback)) {
      names.insert(x->target()->name());
      result.push_back(std::move(x));
    }
  for (auto& x : default_trackers(config))
    if (!names.contains(x->target()->name()))
      result.push_back(std::move(x));
  return result;
}

expected<void> check(const tracker_list& trackers, const tracked_run& run) {
  std::set<std::string> names;
  for (auto& x : trackers) {
    auto name = x->target()->name();
    if (!names.insert(name).second)
      return failure(ec::invalid_config, "run.callbacks has two trackers named "
                                           + name + "; a run has one of each");
    if (auto ok = x->target()->check(run); !ok)
      return failure(ec::invalid_config,
                     "tracker " + name + ": " + ok.error().message);
  }
  return {};
}

} // namespace

expected<std::unique_ptr<tracker_set>>
tracker_set::start(const run_config& config, const run_description& run,
                   const fs::path& run_path, listeners to) {
  auto trackers = trackers_of(config);
  auto facts = describe_tracked_run(run, run_path);
  facts.status = to.status;
  if (auto ok = check(trackers, facts); !ok)
    return tl::unexpected{ok.error()};
  std::unique_ptr<tracker_set> result{new tracker_set{std::move(to)}};
  for (auto& x : trackers)
    if (auto ok = result->add(*x, facts); !ok)
      return tl::unexpected{ok.error()};
  return result;
}

expected<void> tracker_set::add(const tracker& x, tracked_run run) {
  auto& target = *x.target();
  auto file = run.path / "sinks" / (target.name() + ".options");
  if (auto ok = replace_file(file, target.options()); !ok)
    return ok;
  try {
    threads_.push_back(std::make_unique<sink_thread>(x.target(), std::move(run),
                                                     x.options(), to_.note));
  } catch (const std::system_error& problem) {
    return failure(ec::spawn, "tracker " + target.name()
                                + " gets no thread: " + problem.what());
  }
  return {};
}

void tracker_set::notify() noexcept {
  for (auto& x : threads_)
    x->notify();
}

void tracker_set::abandon() {
  std::lock_guard guard{mutex_};
  for (auto& x : threads_)
    x->abandon();
}

std::vector<std::string> tracker_set::finish() {
  std::vector<std::string> result;
  for (auto& x : threads_)
    x->close();
  auto begin = sink_thread::clock::now();
  for (auto& x : threads_)
    if (auto unsent = x->join(begin + x->options().finish_timeout);
        !unsent.empty()) {
      to_.note(unsent);
      result.push_back(std::move(unsent));
    }
  std::lock_guard guard{mutex_};
  threads_.clear();
  return result;
}

std::vector<std::shared_ptr<user_callback>>
told_callbacks(const std::vector<std::shared_ptr<user_callback>>& callbacks) {
  std::vector<std::shared_ptr<user_callback>> result;
  for (auto& x : callbacks)
    if (!std::dynamic_pointer_cast<const tracker>(x))
      result.push_back(x);
  return result;
}

} // namespace troupe
