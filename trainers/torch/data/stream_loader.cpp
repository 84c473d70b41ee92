#include "troupe/trainers/torch/data/stream_loader.hpp"

#include <ATen/ops/from_blob.h>

#include "troupe/trainers/torch/collectives.hpp"

namespace troupe::internal {

std::vector<std::int64_t> sum_over_ranks(train_context& context,
                                         std::vector<std::int64_t> x) {
  all_reduce(
    context,
    at::from_blob(x.data(), {static_cast<std::int64_t>(x.size())}, at::kLong));
  return x;
}

data_loader_options common_options(const stream_loader_options& x) {
  return {.workers = x.workers,
          .prefetch = x.prefetch,
          .move_to_device = x.move_to_device};
}

} // namespace troupe::internal
