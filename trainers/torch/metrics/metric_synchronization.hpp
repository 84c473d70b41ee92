#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe::internal {

/// Computes metrics over all ranks at once.
///
/// Takes at most two collectives for any number of metrics: an all-gather of
/// the first `inline_bytes` of each rank's states, and another one of all of
/// them if any rank has more. Every rank then adds up the states in order of
/// rank, so that all ranks compute the same bits.
class metric_synchronization {
public:
  /// Bytes of the first all-gather. Enough for the states of twenty metrics
  /// with a few numbers each; a message of this size takes microseconds.
  static constexpr std::int64_t inline_bytes = 4096;

  /// Over *plane*; by default over that of the train loop on this thread, or
  /// over one process outside of a train loop.
  metric_synchronization(std::vector<metric*> members,
                         const std::optional<torch_data_plane>& plane);

  /// The value of each member. A collective. Throws `train_error` on every rank
  /// if the ranks have different metrics.
  std::vector<at::Tensor> values();

private:
  using states_list = std::vector<metric_states>;

  /// The states of every rank; nothing if all ranks have cached values.
  std::optional<std::vector<states_list>> gather() const;

  /// Row r is what rank r passed as *mine*.
  at::Tensor all_gather(at::Tensor mine) const;

  void check_signatures(const at::Tensor& signatures) const;

  /// A hash of the members' kinds and options.
  std::int64_t signature() const;

  /// The states of all *ranks*, for each leader.
  states_list merged(std::vector<states_list> ranks) const;

  bool computed() const;
  void compute_members() const;

  std::vector<metric*> members_;
  std::vector<metric*> leaders_; // One for each distinct state.
  torch_data_plane plane_;
};

} // namespace troupe::internal
