#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/sweep/halving.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"

namespace troupe::internal {

/// Judges the reports of all trials of a sweep by its metric, and keeps each
/// comparison in the sweep's journal. Any thread may call; a run that hangs may
/// do so after the sweep has ended.
class trial_judge {
public:
  /// *rungs* unset: every trial continues.
  trial_judge(std::string metric, std::optional<halving> rungs,
              sweep_store& store)
    : metric_(std::move(metric)), rungs_(std::move(rungs)), store_(&store) {}

  /// Takes the comparisons of earlier starts. A driver that was killed may not
  /// have ended a trial that one of them ends: its next report does. Returns
  /// how many do not count, because halving has other options now.
  std::size_t restore(const std::vector<trial_comparison>& all);

  /// Why the trial *index* has trained enough after the report *x*; nothing: it
  /// continues.
  std::optional<std::string> judge(std::size_t index, const report_batch& x);

  /// From now on every trial continues, and the store is not used.
  void retire();

  /// Why a comparison could not be stored.
  error problem() const;

private:
  std::string metric_;
  mutable std::mutex mutex_; // guards what follows
  std::optional<halving> rungs_;
  std::map<std::size_t, std::string> ended_; // why, in an earlier start
  sweep_store* store_;
  error problem_;
};

} // namespace troupe::internal
