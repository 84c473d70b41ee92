#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/environment_map.hpp"
#include "troupe/runtime/hosts/host_list.hpp"

namespace troupe::internal {

// What Slurm's variables say. Variables that contradict each other are
// `ec::invalid_config`.

struct slurm_job {
  std::string name; ///< "4711", or "4711_3" for an element of an array.
  int restarts = 0; ///< After preemption, or the failure of a node.
};

/// Unset: this process is in no job.
expected<std::optional<slurm_job>>
read_slurm_job(const environment_reader& variables);

/// "Slurm job 4711 (restart 1)"
std::string to_string(const slurm_job& x);

/// The place of a process among those that one `srun` has started.
struct slurm_task {
  std::int64_t number = 0;
  std::int64_t local = 0;            ///< Among those of its node.
  std::optional<std::int64_t> count; ///< Of the step's tasks, if it is known.
};

/// Whether the variables of a step are of another job. `sbatch` and `salloc`
/// pass on those of the step in which someone has called them.
bool has_step_of_other_job(const environment_reader& variables);

/// Unset: `srun` has not started this process, or one above it, in this job.
expected<std::optional<slurm_task>>
read_slurm_task(const environment_reader& variables);

struct slurm_nodes {
  std::vector<host_entry> hosts;        ///< Slots are the tasks of a node.
  std::optional<std::size_t> own_index; ///< This node, by its name in Slurm.
};

/// The nodes of each component of a heterogeneous job; empty: the job has one.
expected<std::vector<std::vector<std::string>>>
read_slurm_components(const environment_reader& variables);

/// The nodes of the step of this process, or of its job. Of a heterogeneous
/// job, a step has those of its components, anything else the first one's.
expected<slurm_nodes> read_slurm_nodes(const environment_reader& variables,
                                       bool of_step);

/// The numbers of "4,1" or "1(x3)", one per node, as Slurm counts tasks.
/// *name* is for the error's sentence.
expected<std::vector<int>> expand_slurm_counts(std::string_view text,
                                               std::string_view name);

} // namespace troupe::internal
