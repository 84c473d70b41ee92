#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe {

/// Where ranks run.
enum class placement : std::uint8_t {
  processes,  ///< One process per rank on this host.
  in_process, ///< One thread per rank in the caller's process; loops may be
              ///< closures.
};

/// A number of ranks; or the fewest and the most of an elastic run, which
/// continues with fewer if hosts are lost, and with more if they come.
struct worker_count {
  int min = 1;
  int max = 1;

  constexpr worker_count(int count = 1) noexcept : min(count), max(count) {}
  constexpr worker_count(int fewest, int most) noexcept
    : min(fewest), max(most) {}

  /// The most.
  constexpr operator int() const noexcept { return max; }

  constexpr bool is_elastic() const noexcept { return min != max; }
};

/// When an elastic run takes hosts that have come. Its ranks leave after a
/// report, and the next attempt has more.
enum class resize_policy : std::uint8_t {
  at_once,         ///< With the next report.
  next_checkpoint, ///< With the next report that has a checkpoint.
  never,           ///< Only when ranks are restarted anyway.
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
  /// as rank 0 of 1. {2, 8}: 2 to 8, as many as the hosts that are there have
  /// room for.
  worker_count num_workers = 1;
  /// Ranks on each host, instead of `num_workers`; 0: that counts.
  int workers_per_host = 0;
  /// Fewest hosts with `workers_per_host`; 0: all.
  int min_hosts = 0;
  /// Most hosts with `workers_per_host`, if agents are launched; 0: those that
  /// are given. More may come by themselves, with `run_config::agent_ticket`.
  int max_hosts = 0;
  resize_policy resize = resize_policy::next_checkpoint;
  bool use_gpu = false;
  resources resources_per_worker;
  placement where = placement::processes;
  /// Hosts with ranks, such as {"a", "n[1-4]"}, or the path of a file with one
  /// host per line. This program starts an agent on each by ssh. What `--hosts`
  /// names counts instead. Empty: in a job of Slurm its nodes, else this host.
  std::vector<std::string> hosts;
  /// Other hosts with ranks. On each, someone starts this program with
  /// `--node-agent` and the ticket in `run_config::agent_ticket`. Ranks are
  /// spread evenly: this host has the first ones.
  int agents = 0;
  /// How long an attempt waits for the agents of all hosts. An elastic run then
  /// starts with those that are there, if they have room for enough ranks.
  std::chrono::milliseconds join_timeout = std::chrono::minutes{2};
  /// How long a host may be silent before the console names it. Agents send a
  /// sign of life each second.
  std::chrono::milliseconds suspect_after = std::chrono::seconds{3};
  /// How long it may be silent before it is lost, and its ranks with it. Agents
  /// wait as long for a driver that is silent, but not less than 10 s.
  std::chrono::milliseconds lost_after = std::chrono::seconds{10};
  /// On which network of its hosts ranks talk to each other: the name of an
  /// interface ("eth1"), or a network that has one address of each host
  /// ("10.1.0.0/16"). Empty: the one by which agents reach the driver.
  std::string network_interface;
};

namespace internal {

/// Most hosts of a run; as many as Slurm allows in one range.
inline constexpr std::size_t max_hosts = 65'536;

/// What a host has, as far as ranks can claim it.
struct host_resources {
  double cpus = 0;
  double gpus = 0;
};

/// CUDA_VISIBLE_DEVICES of this process.
std::optional<std::string> own_visible_devices();

/// Counts the cores this process may run on and the GPUs that CUDA shows with
/// *visible_devices*.
host_resources local_resources(
  const std::optional<std::string>& visible_devices = own_visible_devices());

/// The GPUs of a host: the driver makes nvidia0, nvidia1, … in *devices*. Not
/// on WSL 2, and after a boot only once a program has used the driver: without
/// such files the result is that of *ask*, which does.
int count_cards(const std::string& devices, const std::function<int()>& ask);

/// The GPUs of this host that CUDA shows to a process whose
/// CUDA_VISIBLE_DEVICES is *variable*: see `visible_gpus`.
std::vector<std::string>
gpus_shown_with(const std::optional<std::string>& variable);

/// Which of *cards* GPUs CUDA shows to a process whose CUDA_VISIBLE_DEVICES is
/// *variable*: the entries before the first one that is not a card, in CUDA's
/// order. Unset shows all, by number. Of slices of cards (MIG) CUDA shows a
/// process the first one alone.
std::vector<std::string>
visible_gpus(const std::optional<std::string>& variable, int cards);

/// "2 to 8", or "2".
std::string count_text(const worker_count& x);

/// "2:8", or "2", as `--workers` takes it.
std::string option_text(const worker_count& x);

/// The number or range of *text*, see `option_text`. Nothing if it is neither.
std::optional<worker_count> parse_count(std::string_view text) noexcept;

/// The hosts of *x* as `--hosts` takes them: "a,n[1-4]".
std::string text_of_hosts(const scaling_config& x);

/// The GPUs of the rank *local_rank* of a host that serves one run, as CUDA
/// numbers them in processes there; the first is the rank's device. Empty: the
/// rank computes on the CPU.
std::vector<int> gpus_of(const scaling_config& x, int local_rank);

/// Ranks of one host, which are numbered one after the other.
struct host_share {
  int first_rank = 0;
  int ranks = 1;

  bool operator==(const host_share&) const = default;
};

/// The ranks of each host, this one first: as evenly as possible, and the first
/// hosts have more.
std::vector<host_share> spread_ranks(const scaling_config& x);

/// Refuses a range that has no number in it.
expected<void> validate(const worker_count& x);

/// Refuses more ranks and hosts than a run can have. Below these limits no
/// product of them overflows.
expected<void> validate_counts(const scaling_config& x);

/// Refuses negative numbers, fractions of a GPU and claims that *host* can
/// never hold. *shares* are the ranks of each host, this one first.
expected<void> validate(const scaling_config& x, const host_resources& host,
                        const std::vector<host_share>& shares);
inline expected<void> validate(const scaling_config& x,
                               const host_resources& host) {
  return validate(x, host, spread_ranks(x));
}

} // namespace internal

} // namespace troupe
