#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/hosts/host_states.hpp"
#include "troupe/runtime/values/run_error.hpp"

namespace troupe::internal {

/// Decides which failures of ranks follow from the loss of a host. An attempt
/// that fails for those alone does not count as a failure of the run.
///
/// Invariants (the tests cite them by name):
///   LE-1  Only the loss of a host of an elastic run, or of one that had said
///         that it would leave, excuses anything.
///   LE-2  A rank on such a host is excused if it is lost, could not be
///         started, was ended by SIGKILL or SIGTERM, or took longer than a
///         limit and the host is lost: an exception or a crash is its own.
///   LE-3  Once a host with ranks is lost, each exception, each end of a
///         process, each exceeded limit and each misuse since its last sign is
///         excused, on every host, also one that becomes known after the loss.
///   LE-4  One failure without an excuse makes the attempt count.
class loss_excuses {
public:
  using time_point = std::chrono::steady_clock::time_point;

  struct failed_rank {
    std::size_t host = 0;
    rank_failure::kind_type kind = rank_failure::kind_type::exception;
    int code = 0; ///< As in `rank_failure`.
    std::optional<time_point> loop_ended;
    std::optional<time_point> process_ended;
    /// When ranks were to end: at once if it was over a limit or broke a rule.
    std::optional<time_point> end_ordered;
  };

  explicit loss_excuses(bool is_elastic = false) : is_elastic_(is_elastic) {}

  /// *host*, which has ranks, has said that it will leave, and why.
  void leaves(std::size_t host, std::string why) {
    left_.emplace(host, host_end{std::move(why)});
  }

  /// A host was lost; *why* is that in a sentence.
  void lost(const host_lost& x, const std::string& why, bool has_ranks);

  /// Why none of *failures* counts; empty: one does.
  std::string excuse(const std::vector<failed_rank>& failures) const;

private:
  struct host_end {
    std::string why;
    bool is_lost = false; ///< Else it is only about to leave.
  };

  /// Null: it has none.
  const std::string* excuse_of(const failed_rank& x) const;

  bool is_elastic_;
  std::map<std::size_t, host_end> left_; ///< By host.
  /// The last signs of lost hosts of ranks, and why those were lost.
  std::vector<std::pair<time_point, std::string>> losses_;
};

} // namespace troupe::internal
