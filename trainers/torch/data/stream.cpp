#include "troupe/trainers/torch/data/stream.hpp"

#include <algorithm>
#include <string>

#include "troupe/runtime/counted.hpp"
#include "troupe/trainers/torch/data/dataset.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe::internal {

namespace {

/// More than fit into memory: "all at once". What is read ahead, some batches,
/// is counted in samples, in a 64-bit number.
constexpr auto max_stream_batch = std::int64_t{1} << 32;

std::string text_of(const stream_shard& x) {
  return c10::str("rank ", x.rank, ": shard ", x.index, " of ", x.count,
                  " of the stream, epoch ", x.epoch);
}

} // namespace

void throw_stream_error(const stream_shard& shard, std::int64_t position) {
  throw_nested_error(
    c10::str(text_of(shard), ", failed at its sample ", position));
}

void throw_collate_error(const stream_shard& shard, std::size_t samples) {
  throw_nested_error(c10::str("rank ", shard.rank,
                              ": the stream failed at a "
                              "batch of ",
                              counted(samples, "sample"), " of epoch ",
                              shard.epoch));
}

void throw_shorter_stream(std::int64_t found, std::int64_t taken) {
  throw_invalid_argument("it ended after ", counted(found, "sample"), ", but ",
                         taken,
                         " were taken of it when its place was saved: the data "
                         "has changed");
}

stream_progress::stream_progress(stream_loader_options options, int rank,
                                 int world_size, bool is_resumable)
  : options_(options), rank_(rank), world_size_(world_size),
    is_resumable_(is_resumable) {
  if (options.batch_size < 1)
    throw_invalid_argument("a batch size of ", options.batch_size,
                           " is below 1");
  options_.batch_size = std::min(options.batch_size, max_stream_batch);
  if (options.shards < world_size)
    throw_invalid_argument("a stream of ", options.shards,
                           " shards cannot be divided among ", world_size,
                           " ranks: stream_loader_options::shards must be at "
                           "least as many");
  state_.seed = options.seed;
  begin_epoch(0);
}

void stream_progress::begin_epoch(std::uint64_t epoch) {
  state_.epoch = epoch;
  state_.ended = false;
  state_.taken.assign(static_cast<std::size_t>(options_.shards), 0);
}

void stream_progress::set_epoch(std::uint64_t epoch) {
  if (!start_.choose(epoch == state_.epoch))
    begin_epoch(epoch);
}

void stream_progress::start() {
  auto begins = start_.begin(state_.ended);
  // What other ranks had taken when their epoch ended, a rank without steps in
  // common did not know: one would begin where it ended, the others at its
  // start.
  auto is_own_end = options_.tail == tail::no_padding && state_.ended;
  if (begins == pass_start::place::next_epoch)
    begin_epoch(state_.epoch + 1);
  else if (begins == pass_start::place::epoch || is_own_end)
    begin_epoch(state_.epoch);
}

void stream_progress::load_state(const stream_state& x) {
  auto shards = static_cast<std::int64_t>(x.taken.size());
  if (shards != options_.shards)
    throw_invalid_argument(
      "the place that was saved is one in a stream of ",
      counted(shards, "shard"), ", but this one has ", options_.shards,
      ": give stream_loader_options::shards the same number for a whole run");
  auto is_begun = std::ranges::any_of(x.taken, [](auto n) { return n > 0; });
  if (is_begun && !x.ended && !is_resumable_)
    throw_invalid_argument(
      "epoch ", x.epoch,
      " of this stream was left in the middle, but the "
      "stream cannot be resumed (its resumable is false): save its state "
      "between epochs, or do not restore it");
  state_ = x;
  start_.load();
}

stream_state stream_progress::state() const {
  auto is_begun =
    std::ranges::any_of(state_.taken, [](auto n) { return n > 0; });
  if (is_begun && !state_.ended && world_size_ > 1 && !in_step())
    throw_invalid_argument(
      "rank ", rank_,
      " knows its own place in the stream alone, because of "
      "tail::no_padding: save the loader between epochs, or use tail::pad");
  return state_;
}

std::vector<std::pair<stream_shard, std::int64_t>>
stream_progress::shards() const {
  std::vector<std::pair<stream_shard, std::int64_t>> result;
  for (auto i = rank_; i < options_.shards; i += world_size_)
    result.emplace_back(stream_shard{i, options_.shards, state_.seed,
                                     state_.epoch, rank_, world_size_},
                        state_.taken[static_cast<std::size_t>(i)]);
  return result;
}

std::vector<std::int64_t>
stream_progress::offer(const std::vector<std::int64_t>& taken,
                       std::int64_t samples) const {
  std::vector<std::int64_t> result(
    static_cast<std::size_t>(options_.shards + world_size_));
  for (auto i = rank_; i < options_.shards; i += world_size_)
    result[static_cast<std::size_t>(i)] = taken[static_cast<std::size_t>(i)];
  result[static_cast<std::size_t>(options_.shards + rank_)] = samples;
  return result;
}

std::optional<std::int64_t>
stream_progress::agree(const std::vector<std::int64_t>& offers) {
  auto batches = offers.begin() + options_.shards;
  // Of ranks that go alone, the others have offered nothing.
  auto fewest = batches[rank_];
  auto most = batches[rank_];
  if (in_step()) {
    fewest = *std::min_element(batches, offers.end());
    most = *std::max_element(batches, offers.end());
  }
  auto is_over =
    options_.tail == tail::drop_last ? fewest < options_.batch_size : most == 0;
  if (is_over) {
    state_.ended = true;
    return std::nullopt;
  }
  state_.taken.assign(offers.begin(), batches);
  return most;
}

void stream_progress::throw_no_samples() const {
  throw_invalid_argument(
    "rank ", rank_, " found no sample in its shards in epoch ", state_.epoch,
    ", but others did: use tail::drop_last or no_padding, fewer ranks, or a "
    "stream that gives each of its ",
    options_.shards, " shards samples");
}

} // namespace troupe::internal
