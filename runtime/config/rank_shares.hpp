#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Deals *ranks* to hosts with *slots*: as evenly as possible, none more than
/// its slots, and the first hosts have more. Returns those of each host, and
/// fewer than *ranks* in all if there are not enough slots.
std::vector<int> deal_ranks(const std::vector<int>& slots, int ranks);

/// Numbers the ranks of *hosts*, one host after the other: sets the
/// `first_rank` of each. Returns how many ranks there are.
template <class Host>
int number_ranks(std::vector<Host>& hosts) noexcept {
  int result = 0;
  for (auto& host : hosts) {
    host.first_rank = result;
    result += host.ranks;
  }
  return result;
}

/// The number of ranks of *shares*.
int ranks_in(const std::vector<host_share>& shares) noexcept;

/// How many ranks a host can have.
struct host_room {
  int ranks = 0;        ///< 0: it cannot be used.
  std::string shortage; ///< Why fewer than planned; empty: it has room for all.
};

/// What each rank claims of its host.
struct rank_claim {
  double cpus = 0;
  double gpus = 0;

  /// The room for *planned* ranks on *host*, which has *have*. It is not used
  /// for fewer than *fewest*.
  host_room room_on(std::string_view host, const host_resources& have,
                    int planned, int fewest) const;

  /// Why *ranks* ranks do not fit on *host*: "2 workers ask for 2 gpus, host h2
  /// has 1". Empty: they do.
  std::string shortage_on(std::string_view host, const host_resources& have,
                          int ranks) const;
};

/// As `scaling_config::resources_per_worker` says; GPUs are claimed with
/// `use_gpu`, too.
rank_claim claim_of(const scaling_config& x);

/// Refuses negative numbers and fractions of a GPU.
expected<void> validate(const rank_claim& x);

} // namespace troupe::internal
