#pragma once

#include "troupe/callbacks/callback_list.hpp"
#include "troupe/runtime/run/run_context.hpp"
#include "troupe/runtime/run/run_store.hpp"
#include "troupe/runtime/run/told_reports.hpp"

namespace troupe {

/// The callbacks of a run without actors, called on the loop's thread. What
/// they throw is noted as in any run.
class inline_callbacks {
public:
  /// *told* is set if *list* has callbacks.
  inline_callbacks(callback_list list, std::optional<told_reports> told,
                   run_context context, run_store& store, bool quiet)
    : list_(std::move(list)), told_(std::move(told)),
      context_(std::move(context)), store_(store), quiet_(quiet) {}

  const run_context& context() const noexcept { return context_; }

  void begin_attempt(std::uint64_t attempt) { context_.attempt = attempt; }

  /// Then tells what an earlier driver did not live to tell.
  void before_run();
  void after_report(std::uint64_t index, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data);
  void after_exception(const std::map<int, rank_failure>& ranks) {
    note(list_.after_exception(context_, ranks));
  }
  void after_run(const result& outcome) {
    note(list_.after_run(context_, outcome));
  }

  /// What the run is to end for; `ec::none` while it may go on.
  const error& end_reason() const noexcept { return end_reason_; }

private:
  void note(const callback_outcome& x);

  callback_list list_;
  std::optional<told_reports> told_;
  run_context context_;
  run_store& store_;
  bool quiet_;
  error end_reason_;
};

} // namespace troupe
