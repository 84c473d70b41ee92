#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

/// Computes metrics over all ranks at once.
///
/// Two collectives at most, however many metrics: the ranks gather what fits
/// into `inline_bytes` of each, and the rest if there is more. Everybody then
/// adds up the states in order of rank, so that all ranks hold the same bits.
class metric_synchronization {
public:
  /// What travels with the first collective. The states of twenty metrics with
  /// a few numbers each fit; a message of this size takes microseconds.
  static constexpr std::int64_t inline_bytes = 4096;

  /// *plane* is where the ranks meet; by default that of the train loop on this
  /// thread, and of one rank where there is none.
  metric_synchronization(std::vector<metric*> members,
                         const std::optional<torch_data_plane>& plane);

  /// The value of each member. A collective. Throws `train_error`, on every
  /// rank, if the ranks have different metrics.
  std::vector<at::Tensor> values();

private:
  using states_list = std::vector<metric_states>;

  /// The states of every rank; nothing if all ranks still have their values.
  std::optional<std::vector<states_list>> gather() const;

  /// Row r is what rank r passed as *mine*.
  at::Tensor all_gather(at::Tensor mine) const;

  void check_signatures(const at::Tensor& signatures) const;

  /// A number that differs where the kinds of the members do.
  std::int64_t signature() const;

  /// The states of all *ranks*, for each leader.
  states_list merged(std::vector<states_list> ranks) const;

  bool computed() const;
  void compute_members() const;

  std::vector<metric*> members_;
  std::vector<metric*> leaders_; // One for each distinct state.
  torch_data_plane plane_;
};

} // namespace troupe
