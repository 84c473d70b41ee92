#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Where ranks run.
enum class placement : std::uint8_t {
  processes,  ///< One process per rank on this host.
  in_process, ///< One thread per rank in the caller's process; loops may be
              ///< closures.
};

/// Resources that one rank needs.
struct resources {
  /// Cores claimed per rank. Unset claims none: ranks share what the host has,
  /// so that eight ranks run on two cores.
  std::optional<double> cpus;
  /// GPUs claimed per rank, a whole number: ranks do not share a GPU. Unset
  /// means one if `use_gpu`.
  std::optional<double> gpus;
};

/// How many ranks there are and where.
struct scaling_config {
  /// Number of ranks. 0 runs the loop inline on the thread that calls `fit()`,
  /// as rank 0 of 1.
  int num_workers = 1;
  bool use_gpu = false;
  resources resources_per_worker;
  placement where = placement::processes;
};

namespace internal {

/// What a host has, as far as ranks can claim it.
struct host_resources {
  double cpus = 0;
  double gpus = 0;
};

/// Counts the cores this process may run on and the GPUs that CUDA shows it.
host_resources local_resources();

/// How many of *cards* GPUs CUDA shows to a process whose CUDA_VISIBLE_DEVICES
/// is *variable*: the entries before the first one that is not a card, as CUDA
/// counts them. Unset shows all.
int visible_gpus(const std::optional<std::string>& variable, int cards);

/// The GPUs of *rank*, as CUDA numbers them in this process; the first is the
/// rank's device. Empty: the rank computes on the CPU.
std::vector<int> gpus_of(const scaling_config& x, int rank);

/// Refuses negative numbers, fractions of a GPU and claims that *host* can
/// never hold.
expected<void> validate(const scaling_config& x, const host_resources& host);

} // namespace internal

} // namespace troupe
