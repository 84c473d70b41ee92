#include "troupe/trainers/torch/data/epoch_order.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Position at which the epoch ends if it goes on at *first*.
std::int64_t end_of_epoch(std::int64_t samples, std::int64_t first,
                          const sampler_options& options) {
  const auto left = std::max<std::int64_t>(samples - first, 0);
  const auto world = std::int64_t{options.world_size};
  switch (options.tail) {
    case tail::pad:
      return first + (left + world - 1) / world * world;
    case tail::drop_last:
      return first + left - left % (options.batch_size * world);
    case tail::no_padding:
      break;
  }
  return first + left;
}

} // namespace

epoch_order::epoch_order(std::int64_t samples, std::int64_t first,
                         sampler_options options,
                         std::shared_ptr<const std::vector<std::int64_t>> order)
  : samples_(samples), first_(first),
    end_(end_of_epoch(samples, first, options)), options_(options),
    order_(std::move(order)) {}

std::int64_t epoch_order::batches() const noexcept {
  const auto all = end_ - first_;
  const auto has_share_of_rest = options_.rank < all % global_batch();
  return all / global_batch() + (has_share_of_rest ? 1 : 0);
}

std::vector<std::int64_t> epoch_order::indices(std::int64_t k) const {
  std::vector<std::int64_t> result;
  const auto end = cursor_after(k);
  auto position = first_ + k * global_batch() + options_.rank;
  for (; position < end; position += options_.world_size) {
    const auto i = position % samples_; // padding starts over
    result.push_back(order_ ? (*order_)[static_cast<std::size_t>(i)] : i);
  }
  return result;
}

std::int64_t epoch_order::cursor_after(std::int64_t k) const noexcept {
  return std::min(end_, first_ + (k + 1) * global_batch());
}

} // namespace troupe
