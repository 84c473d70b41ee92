#include "troupe/callbacks/mlflow/mlflow_parent.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal {

namespace {

using kind = sink_failure::kind;

/// The parents of all sweeps of this process.
struct parent_registry {
  std::mutex mutex; // guards the rest
  std::condition_variable_any idle;
  bool is_asking = false;             ///< A trial asks MLflow.
  std::map<std::string, int> holders; ///< Trials, by the sweep's id.
};

/// Never destroyed: threads of trials may outlive `main`.
parent_registry& registry() {
  static auto instance = new parent_registry;
  return *instance;
}

/// The right of one trial at a time to ask MLflow. It waits for it until a stop
/// is requested.
class turn {
public:
  explicit turn(const std::stop_token& over) {
    auto& x = registry();
    std::unique_lock lock{x.mutex};
    is_ours_ = x.idle.wait(lock, over, [&x] { return !x.is_asking; })
               && !over.stop_requested();
    x.is_asking = x.is_asking || is_ours_;
  }

  ~turn() {
    if (!is_ours_)
      return;
    {
      std::lock_guard guard{registry().mutex};
      registry().is_asking = false;
    }
    registry().idle.notify_all();
  }

  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

  explicit operator bool() const noexcept { return is_ours_; }

private:
  bool is_ours_ = false;
};

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
  turn own{result->cancelled_};
  if (!own)
    return cancelled_call();
  TROUPE_TRY_VOID(result->store_->open(run, {}));
  auto state = json::parse(result->store_->state());
  if (state.is_object())
    result->id_ = state.value("run_id", "");
  return result;
}

sink_result mlflow_parent::end(run_status_kind status, std::int64_t time_ms) {
  turn own{cancelled_};
  if (!own)
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
