#include "troupe/trainers/torch/data/global_batch.hpp"

#include <algorithm>
#include <limits>

#include "troupe/runtime/counted.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

batch_split split_global_batch(int world_size, std::int64_t global_batch_size,
                               std::int64_t max_batch_size) {
  require_at_least(1, world_size, "split_global_batch: world_size");
  require_at_least(1, global_batch_size,
                   "split_global_batch: global_batch_size");
  require_at_least(1, max_batch_size, "split_global_batch: max_batch_size");
  if (global_batch_size % world_size != 0)
    throw_invalid_argument(
      "split_global_batch: ", world_size, " ranks cannot have equal parts of ",
      counted(global_batch_size, "sample"),
      "; choose a multiple of each number of ranks that the run may "
      "have");
  auto share = global_batch_size / world_size;
  auto batch_size = std::min(share, max_batch_size);
  while (share % batch_size != 0)
    --batch_size;
  auto batches = share / batch_size;
  if (batches > std::numeric_limits<int>::max())
    throw_invalid_argument("split_global_batch: ", batches,
                           " batches for one step are too many");
  return {batch_size, static_cast<int>(batches)};
}

} // namespace troupe
