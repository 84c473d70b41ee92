#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/process/usable_cores.hpp"

namespace troupe::internal {

/// How the ranks of one host share its cores.
struct cpu_plan {
  /// The cores of each local rank; empty lists if there are fewer cores than
  /// ranks, or if they have a number of cores, but none in particular.
  std::vector<std::vector<int>> cores;

  /// OpenMP threads of a rank: its part of the cores, at least 1.
  int threads_per_rank = 1;

  /// More ranks than cores: waiting threads must not spin.
  bool oversubscribed = false;
};

/// Divides *available* among *ranks* >= 1 ranks in contiguous pieces whose
/// sizes differ by at most one. As many as *runs* such runs use these cores at
/// once: with more than one, a rank has a number of cores, but none in
/// particular.
cpu_plan plan_cpus(usable_cores available, int ranks, int runs = 1);

/// The OpenMP variables a rank gets under *plan*. Variables for which *is_set*
/// returns true are the user's and are not changed.
std::vector<std::pair<std::string, std::string>>
openmp_environment(const cpu_plan& plan,
                   const std::function<bool(const char* name)>& is_set);

} // namespace troupe::internal
