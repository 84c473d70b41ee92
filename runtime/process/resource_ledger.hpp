#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace troupe::internal {

/// The cores and GPUs of this host that one run has. They are given back when
/// the share goes.
struct resource_share {
  std::vector<int> cores; ///< In ascending order; empty: none in particular.
  std::vector<int> gpus;  ///< In ascending order, as CUDA numbers them.
  std::size_t cores_in_use = 0; ///< Cores that others had already.
  std::size_t gpus_in_use = 0;  ///< The same of GPUs.
};

class use_counts;

/// Which cores and GPUs of its host the runs of a process have. A run takes
/// those that the fewest others have, the first ones of these: runs side by
/// side share none as long as there are enough. Any thread may call it.
class resource_ledger {
public:
  /// What a run chooses from, and how much of it it takes.
  struct demand {
    std::vector<int> cores;
    std::size_t core_count = 0;
    /// The name of each GPU in `CUDA_VISIBLE_DEVICES`, in CUDA's order: a card
    /// that two runs name differently, "0" and "GPU-...", counts as two.
    std::vector<std::string> gpus;
    std::size_t gpu_count = 0;
  };

  resource_ledger();

  /// Takes what *x* says; all there is, if that is less. Never null.
  std::shared_ptr<const resource_share> take(const demand& x);

private:
  std::shared_ptr<use_counts> cores_;
  std::shared_ptr<use_counts> gpus_;
};

/// The one of this process.
resource_ledger& own_resource_ledger();

} // namespace troupe::internal
