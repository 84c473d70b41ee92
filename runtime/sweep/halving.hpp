#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe {

/// Asynchronous successive halving: trials that are worse than others after the
/// same number of reports end early. Nothing waits for other trials: one that
/// comes first continues.
struct halving_options {
  /// Reports after which a trial is compared for the first time; then after
  /// `reduction` times as many, and so on.
  std::uint64_t min_reports = 1;
  /// The best of so many continue.
  int reduction = 3;
  /// Reports after which any trial has trained enough. Unset: its loops return.
  std::optional<std::uint64_t> max_reports;
};

namespace internal {

/// Refuses a reduction below 2 and numbers of reports below 1.
expected<void> validate(const halving_options& x);

/// Decides which trials continue. Compares values of one metric.
///
///   SH-1  Of n trials that have come to a rung, one continues if it is among
///         the best max(1, ceil(n / reduction)), itself included.
///   SH-2  A trial is compared once at each rung, also after a restart.
///   SH-3  NaN is worse than any number.
class halving {
public:
  /// A comparison.
  struct entry {
    std::size_t trial = 0;
    std::size_t rung = 0;
    double value = 0;
    bool continues = true;
    std::uint64_t reports = 0; ///< Of the rung; 0: an older version's entry.

    bool operator==(const entry&) const = default;
  };

  halving(const halving_options& options, score_order order)
    : options_(options), order_(order) {}

  /// *trial* has made *reports* reports, the last one with *value*. Nothing: it
  /// is at no rung that it has not been at.
  std::optional<entry> judge(std::size_t trial, std::uint64_t reports,
                             double value);

  /// Takes what `judge` has returned to an earlier driver, and returns it with
  /// the rung that it has now. Nothing: the options were others, and there is
  /// no such rung any more. Then only SH-2 follows from it.
  std::optional<entry> restore(entry x);

  /// Reports of rung *rung*.
  std::uint64_t reports_of(std::size_t rung) const;

  /// Why a trial ends with *x*.
  std::string reason_of(const entry& x) const;

private:
  void add(const entry& x);

  halving_options options_;
  score_order order_;
  std::vector<std::vector<double>> rungs_;  // values, in order of arrival
  std::map<std::size_t, std::size_t> next_; // rung, by trial
};

} // namespace internal

} // namespace troupe
