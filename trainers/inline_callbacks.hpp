#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "troupe/callbacks/callback_list.hpp"
#include "troupe/runtime/run/run_context.hpp"
#include "troupe/runtime/run/run_store.hpp"
#include "troupe/runtime/run/told_reports.hpp"

namespace troupe {

/// Calls a list of callbacks on a thread of its own, which it leaves behind
/// with the list if one of them does not come back.
class callback_thread {
public:
  using call = std::function<callback_outcome(callback_list&)>;

  /// Starts the thread. Throws `std::system_error` if there is none to be had.
  explicit callback_thread(callback_list list);
  ~callback_thread();

  callback_thread(const callback_thread&) = delete;
  callback_thread& operator=(const callback_thread&) = delete;

  /// Has the thread do *x*, which must own all that it uses, and waits. Passes
  /// who has not come back, and for how long, to *name* after each *timeout*
  /// (zero: never). Fails if *x* takes longer than *limit*; then the thread is
  /// left behind.
  expected<callback_outcome> run(call x, std::chrono::milliseconds timeout,
                                 std::optional<std::chrono::milliseconds> limit,
                                 const std::function<void(std::string)>& name);

  bool left_behind() const noexcept { return state_ == nullptr; }

private:
  struct state;

  std::shared_ptr<state> state_; ///< Empty once it was left behind.
};

/// The callbacks of a run without actors. The loop waits for them in its
/// reports. What they throw is noted as in any run.
class inline_callbacks {
public:
  /// *told* is set if *list* has callbacks.
  inline_callbacks(callback_list list, std::optional<told_reports> told,
                   run_context context, run_store& store,
                   const run_config& config);

  const run_context& context() const noexcept { return context_; }

  void begin_attempt(std::uint64_t attempt) { context_.attempt = attempt; }

  /// Then replays the reports whose callbacks had not finished.
  void before_run();
  void after_report(std::uint64_t index, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data);
  void after_exception(const std::map<int, rank_failure>& ranks);
  /// Of a run whose first attempt could not begin, callbacks hear nothing.
  void after_run(const result& outcome);

  /// Shows *text* unless the run is quiet.
  void note(const std::string& text);

  /// Shows what happened to the run's files since the last call.
  void show_store_events();

  /// What the run is to end for; `ec::none` while it may go on.
  const error& end_reason() const noexcept { return end_reason_; }

  /// One sentence for each callback that was given up.
  std::vector<std::string> skipped() const;

private:
  void round(callback_thread::call call);
  void fail(const error& problem);

  std::optional<callback_thread> thread_; ///< Unset: there are no callbacks.
  std::shared_ptr<callback_watch> watch_;
  bool has_begun_ = false; ///< `before_run` was called.
  std::string left_;       ///< Whom the run continues without.
  std::optional<told_reports> told_;
  run_context context_;
  run_store& store_;
  const run_config& config_;
  error end_reason_;
};

} // namespace troupe
