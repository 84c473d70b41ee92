#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/callbacks/user_callback.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/values/callback_done.hpp"

namespace troupe::internal {

/// The callback that is running, for observers on other threads.
class callback_watch {
public:
  /// *who* is running its *hook* from now on; empty: no callback.
  void set(std::string who, std::string_view hook);

  /// "callback 2 (name) in after_report"; empty if none is running.
  std::string text() const;

  /// "callback 2 (name)"; empty if none is running.
  std::string who() const;

private:
  mutable std::mutex mutex_;
  std::string who_;
  std::string_view hook_; // a literal
};

/// Calls the callbacks of a run in order and catches what they throw.
///
/// Each is called whatever the others do: if one ends the run
/// (`callback_errors::abort`), all have seen what counts as delivered.
class callback_list {
public:
  using clock = std::chrono::steady_clock;
  using clock_function = std::function<clock::time_point()>;

  explicit callback_list(std::vector<std::shared_ptr<user_callback>> callbacks,
                         callback_errors policy = callback_errors::log,
                         clock_function now = clock::now);

  /// Shows which callback is running.
  const std::shared_ptr<callback_watch>& watch() const noexcept {
    return watch_;
  }

  callback_done before_run(const run_context& run);
  callback_done after_report(const run_context& run,
                             const std::vector<metrics>& values,
                             const std::optional<checkpoint>& data);
  callback_done after_exception(const run_context& run,
                                const std::map<int, rank_failure>& failures);
  callback_done after_state_change(const run_context& run, run_state from,
                                   run_state to);
  callback_done after_group_start(const run_context& run);
  callback_done after_group_end(const run_context& run, const error& reason);
  callback_done after_run(const run_context& run, const result& outcome);

  bool empty() const noexcept { return callbacks_.empty(); }

private:
  callback_done round(std::string_view hook,
                      const std::function<void(user_callback&)>& call);

  struct entry {
    std::shared_ptr<user_callback> callback;
    std::string name;
  };

  std::shared_ptr<callback_watch> watch_ = std::make_shared<callback_watch>();
  std::vector<entry> callbacks_;
  callback_errors policy_;
  clock_function now_;
};

} // namespace troupe::internal
