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

c10::Device check_loader_options(train_context& context,
                                 const stream_loader_options& options) {
  return check_loader_options(context,
                              {.workers = options.workers,
                               .prefetch = options.prefetch,
                               .move_to_device = options.move_to_device},
                              "stream_loader_options");
}

} // namespace troupe::internal
