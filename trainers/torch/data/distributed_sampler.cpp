#include "troupe/trainers/torch/data/distributed_sampler.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <c10/util/StringUtil.h>

#include "troupe/runtime/counted.hpp"
#include "troupe/trainers/torch/data/epoch_random.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Position at which the epoch ends if it continues at *first*.
std::int64_t end_of_epoch(std::int64_t samples, std::int64_t first,
                          const sampler_options& options) {
  auto left = std::max<std::int64_t>(samples - first, 0);
  auto world = std::int64_t{options.world_size};
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
                         std::shared_ptr<const numbers> order,
                         std::shared_ptr<const std::vector<numbers>> batches)
  : samples_(samples), first_(first),
    end_(end_of_epoch(samples, first, options)), options_(options),
    order_(std::move(order)), batches_(std::move(batches)) {}

std::int64_t epoch_order::batches() const noexcept {
  auto all = end_ - first_;
  auto has_share_of_rest = options_.rank < all % global_batch();
  return all / global_batch() + (has_share_of_rest ? 1 : 0);
}

std::vector<std::int64_t> epoch_order::indices(std::int64_t k) const {
  std::vector<std::int64_t> result;
  auto end = cursor_after(k);
  auto position = first_ + k * global_batch() + options_.rank;
  for (; position < end; position += options_.world_size) {
    auto i = position % samples_; // padding starts over
    if (batches_)
      return (*batches_)[static_cast<std::size_t>(i)];
    result.push_back(order_ ? (*order_)[static_cast<std::size_t>(i)] : i);
  }
  return result;
}

std::int64_t epoch_order::cursor_after(std::int64_t k) const noexcept {
  return std::min(end_, first_ + (k + 1) * global_batch());
}

namespace {

/// Keeps the global batch far below the limit of its type.
constexpr auto max_batch_size = std::int64_t{1} << 32;

void require(bool holds, const std::string& message) {
  if (!holds)
    throw train_error{{ec::invalid_argument, message}};
}

} // namespace

distributed_sampler::distributed_sampler(std::int64_t samples,
                                         sampler_options options)
  : dataset_size_(samples), samples_(samples),
    given_(std::exchange(options.order, nullptr)),
    batches_(std::exchange(options.batches, nullptr)),
    options_(options), state_{options.seed, 0, 0} {
  auto text = [](auto x) { return std::to_string(x); };
  require(samples >= 0, "a dataset cannot have " + text(samples) + " samples");
  require(options.batch_size >= 1 && options.batch_size <= max_batch_size,
          "a batch size of " + text(options.batch_size)
            + " is not between 1 and " + text(max_batch_size));
  require(options.world_size >= 1,
          "a world size of " + text(options.world_size) + " is below 1");
  require(options.rank >= 0 && options.rank < options.world_size,
          "rank " + text(options.rank) + " is not in a world of "
            + text(options.world_size));
  if (!given_ && !batches_)
    return;
  require(!options.shuffle, "an order that is given cannot be shuffled: let "
                            "the function that makes it do that");
  require(!given_ || !batches_,
          "an order of samples and one of batches were given: choose one");
  require(!batches_ || options.batch_size == 1,
          "batches that are given have their own sizes: leave batch_size "
          "at 1");
  samples_ = static_cast<std::int64_t>(
    given_ ? given_(options.seed, 0).size() : batches_(options.seed, 0).size());
}

namespace {

/// *what* is the order that was given.
void check_index(std::int64_t index, std::int64_t size,
                 const std::string& what) {
  require(index >= 0 && index < size,
          c10::str(what, " has sample ", index, ", but the dataset has ", size,
                   ", 0 to ", size - 1));
}

} // namespace

std::vector<std::int64_t>
distributed_sampler::given_order(std::uint64_t seed,
                                 std::uint64_t epoch) const {
  auto result = given_(seed, epoch);
  require(static_cast<std::int64_t>(result.size()) == samples_,
          c10::str("the order of epoch ", epoch, " has ",
                   counted(result.size(), "sample"), ", that of epoch 0 ",
                   samples_));
  for (auto index : result)
    check_index(index, dataset_size_, c10::str("the order of epoch ", epoch));
  return result;
}

std::vector<std::vector<std::int64_t>>
distributed_sampler::given_batches(std::uint64_t seed,
                                   std::uint64_t epoch) const {
  auto result = batches_(seed, epoch);
  require(static_cast<std::int64_t>(result.size()) == samples_,
          c10::str("epoch ", epoch, " has ", result.size(),
                   " batches, epoch 0 has ", samples_));
  for (std::size_t k = 0; k < result.size(); ++k) {
    auto what = c10::str("batch ", k, " of epoch ", epoch);
    require(!result[k].empty(), what + " has no samples");
    for (auto index : result[k])
      check_index(index, dataset_size_, what);
  }
  return result;
}

void distributed_sampler::make_order(const sampler_state& of) const {
  if (batches_)
    whole_batches_ =
      std::make_shared<const std::vector<std::vector<std::int64_t>>>(
        given_batches(of.seed, of.epoch));
  else
    order_ = std::make_shared<const std::vector<std::int64_t>>(
      given_ ? given_order(of.seed, of.epoch)
             : permutation(samples_, of.seed, of.epoch));
  order_of_ = of;
}

void distributed_sampler::set_epoch(std::uint64_t epoch) {
  if (!start_.choose(epoch == state_.epoch))
    state_.cursor = 0;
  state_.epoch = epoch;
}

void distributed_sampler::start() {
  auto used_up =
    state_.cursor > 0 && from(state_.cursor).end() == state_.cursor;
  auto begins = start_.begin(used_up);
  if (begins == pass_start::place::next_epoch)
    ++state_.epoch;
  if (begins != pass_start::place::loaded)
    state_.cursor = 0;
}

std::optional<std::vector<std::int64_t>> distributed_sampler::next() {
  auto order = rest();
  if (order.batches() == 0) {
    advance(order.end());
    return std::nullopt;
  }
  advance(order.cursor_after(0));
  return order.indices(0);
}

epoch_order distributed_sampler::rest() const {
  const sampler_state wanted{state_.seed, state_.epoch, 0};
  auto is_made = order_ || whole_batches_;
  if ((options_.shuffle || given_ || batches_)
      && (!is_made || order_of_ != wanted))
    make_order(wanted);
  return from(state_.cursor);
}

void distributed_sampler::advance(std::int64_t cursor) noexcept {
  auto is_over = end_of_epoch(samples_, cursor, options_) == cursor;
  state_.cursor = is_over ? samples_ : cursor;
}

std::int64_t distributed_sampler::batches() const {
  return from(0).batches();
}

void distributed_sampler::load_state(const sampler_state& x) {
  // Earlier versions counted what padding adds at the end of an epoch.
  auto end =
    options_.tail == tail::pad ? samples_ + options_.world_size - 1 : samples_;
  require(
    x.cursor >= 0 && x.cursor <= end,
    c10::str("a sampler's position of ", x.cursor,
             " does not belong to a dataset of ", counted(samples_, "sample"),
             ": was the state saved for another one, or by an earlier "
             "version with more ranks? Begin an epoch with set_epoch() then"));
  state_ = x;
  state_.cursor = std::min(x.cursor, samples_);
  start_.load();
}

epoch_order distributed_sampler::from(std::int64_t cursor) const {
  return {samples_, cursor, options_, order_, whole_batches_};
}

} // namespace troupe
