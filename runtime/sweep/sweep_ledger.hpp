#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/sweep/search_space.hpp"
#include "troupe/runtime/sweep/searcher.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/runtime/sweep/trial.hpp"

namespace troupe::internal {

/// What the trials of a sweep are compared by, and how many there are.
struct sweep_rules {
  std::string metric;
  score_order order = score_order::min;
  std::optional<std::size_t> trials;
  std::optional<std::size_t> max_failed_trials;
  bool retry_failed = false; ///< Those that failed in earlier starts.
};

/// Which trials of a sweep are left, and how the others ended. Keeps both in
/// the sweep's journal and passes ends to the searcher.
///
///   SL-1  Trials that an earlier start began come before new ones, the oldest
///         first.
///   SL-2  Once `max_failed_trials` have failed in this start, none begins
///         until one has finished, in this start or an earlier one.
class sweep_ledger {
public:
  /// *trials* is filled by `restore` and kept up to date; both references must
  /// outlive the ledger.
  sweep_ledger(std::vector<trial>& trials, sweep_store& store,
               std::shared_ptr<searcher> chooser, sweep_rules rules)
    : trials_(trials), store_(store), searcher_(std::move(chooser)),
      rules_(std::move(rules)) {}

  /// Takes what earlier starts left. `ec::invalid_config`: trials have
  /// finished, and none has reported the metric. An exception of the searcher
  /// is an error that names it, here and below.
  expected<void> restore();

  /// The next trial that an earlier start began and that has not ended. It is
  /// returned once.
  std::optional<trial> next_begun();

  /// The next new trial, which `begin` then records; nothing: there are no
  /// more, or none until a trial has ended. `ec::invalid_argument`: the
  /// searcher chose other params than those of *space*.
  expected<std::optional<trial>> next_new(const search_space& space);

  /// Durable when it returns.
  expected<void> begin(const trial& x);

  /// *x* has ended; sets its score. `ec::invalid_config` as of `restore`.
  expected<void> end(trial x);

  /// Why no trial begins any more, by SL-2 or because all of them failed; ask
  /// once none is under way.
  std::optional<error> reason_to_end() const;

  /// Whether SL-2 holds now.
  bool is_hopeless() const;

  std::size_t ended() const noexcept { return ended_; }
  std::size_t failed() const;
  std::size_t left_to_resume() const noexcept { return resumed_.size(); }
  const sweep_rules& rules() const noexcept { return rules_; }

private:
  expected<std::optional<metrics>> ask(const search_space& space,
                                       std::size_t index);
  expected<void> tell(const trial& x);
  expected<void> check_params(const search_space& space, const trial& x) const;
  void rate(trial& x);
  void count(const trial& x);
  expected<void> check_metric() const;

  std::vector<trial>& trials_;
  sweep_store& store_;
  std::shared_ptr<searcher> searcher_;
  sweep_rules rules_;
  std::vector<std::size_t> resumed_; // the last first
  std::size_t ended_ = 0;
  bool has_metric_ = false;   // a trial that ended had it
  bool has_finished_ = false; // one has
  std::size_t failed_now_ = 0;
  std::optional<std::size_t> first_failed_; // of this start
};

} // namespace troupe::internal
