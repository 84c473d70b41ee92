#include "troupe/callbacks/mlflow/mlflow_parent.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include <nlohmann/json.hpp>

namespace troupe::internal {

namespace {

using kind = sink_failure::kind;

/// How often a trial that waits looks whether it was cancelled.
constexpr std::chrono::milliseconds look_interval{100};

/// The parents of all sweeps of this process.
struct parent_registry {
  std::timed_mutex calls;             // held while MLflow is asked
  std::mutex mutex;                   // guards `holders`
  std::map<std::string, int> holders; // trials, by the sweep's id
};

parent_registry& registry() {
  static parent_registry result;
  return result;
}

/// The lock of `calls`; empty once a stop is requested.
std::unique_lock<std::timed_mutex> wait_for_calls(const std::stop_token& over) {
  std::unique_lock lock{registry().calls, std::defer_lock};
  while (!over.stop_requested() && !lock.try_lock_for(look_interval))
    ;
  return lock;
}

tl::unexpected<sink_failure> cancelled_call() {
  return sink_fails(kind::transient,
                    {ec::stopped, "the run of the sweep was not asked for: no "
                                  "one waits any longer"});
}

} // namespace

mlflow_parent::mlflow_parent(std::unique_ptr<mlflow_store> store,
                             std::string uid, std::stop_token cancelled)
  : store_(std::move(store)), uid_(std::move(uid)),
    cancelled_(std::move(cancelled)) {
  hold();
}

mlflow_parent::~mlflow_parent() {
  release();
}

void mlflow_parent::hold() {
  std::lock_guard guard{registry().mutex};
  if (!std::exchange(holds_, true))
    ++registry().holders[uid_];
}

bool mlflow_parent::release() {
  auto& holders = registry().holders;
  std::lock_guard guard{registry().mutex};
  if (std::exchange(holds_, false) && --holders[uid_] == 0)
    holders.erase(uid_);
  return !holders.contains(uid_);
}

tl::expected<std::unique_ptr<mlflow_parent>, sink_failure>
mlflow_parent::open(std::unique_ptr<mlflow_store> store, const mlflow_run& run,
                    std::stop_token cancelled) {
  std::unique_ptr<mlflow_parent> result{
    new mlflow_parent{std::move(store), run.uid, std::move(cancelled)}};
  auto lock = wait_for_calls(result->cancelled_);
  if (!lock)
    return cancelled_call();
  TROUPE_TRY_VOID(result->store_->open(run, {}));
  auto state = nlohmann::json::parse(result->store_->state(), nullptr, false);
  if (state.is_object())
    result->id_ = state.value("run_id", "");
  return result;
}

sink_result mlflow_parent::end(run_status_kind status, std::int64_t time_ms) {
  auto lock = wait_for_calls(cancelled_);
  if (!lock)
    return cancelled_call();
  if (!release())
    return {};
  // That a trial failed says nothing about the sweep.
  auto ok = store_->end(
    status == run_status_kind::errored ? run_status_kind::finished : status,
    time_ms);
  if (!ok)
    hold();
  return ok;
}

} // namespace troupe::internal
