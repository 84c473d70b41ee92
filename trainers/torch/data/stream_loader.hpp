#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/data/stream.hpp"

namespace troupe {

namespace internal {

/// The sum of *x* of all ranks; a collective.
std::vector<std::int64_t> sum_over_ranks(train_context& context,
                                         std::vector<std::int64_t> x);

} // namespace internal

/// This rank's batches of an iterable dataset, epoch by epoch, used as a
/// `data_loader` is. Each step is a small collective, except with
/// `tail::no_padding`: the ranks agree on whether all have a batch, and each
/// knows the place of all. So all ranks leave a loop at the same step.
///
/// A pass begins at the start of the epoch, or where `load_state` says. Leaving
/// the loop early joins the threads that read ahead, once each has its current
/// sample. An exception of the dataset ends the pass. Belongs to the thread of
/// the loop; one pass at a time.
template <iterable_dataset Dataset>
class stream_loader {
public:
  using sample = internal::stream_sample<Dataset>;
  using batch = decltype(internal::collate_by(std::declval<const Dataset&>(),
                                              std::vector<sample>{}));
  static_assert(std::copy_constructible<sample>,
                "samples of a stream are copied where tail::pad repeats them");

  stream_loader(train_context& context, std::shared_ptr<const Dataset> dataset,
                const stream_loader_options& options, c10::Device device)
    : context_(&context), dataset_(std::move(dataset)),
      progress_(options, context.rank(), context.world_size(), is_resumable()),
      transfer_(device), activity_(context) {}

  class iterator;

  iterator begin() {
    progress_.start();
    return iterator{*this};
  }
  std::default_sentinel_t end() const noexcept { return {}; }

  /// Chooses the epoch of the next pass. A place from `load_state` is kept if
  /// it belongs to this epoch.
  void set_epoch(std::uint64_t epoch) { progress_.set_epoch(epoch); }

  /// Samples in this rank's current batch, without those that `tail::pad` has
  /// added; -1 outside of the loop, and where ranks may have different numbers
  /// of batches: with `tail::no_padding` on several ranks.
  std::int64_t own_samples_in_batch() const noexcept {
    return progress_.in_step() || context_->world_size() == 1 ? in_batch_ : -1;
  }

  /// Where the ranks stand. Inside the loop the current batch counts as done;
  /// samples that were read ahead do not. Throws `train_error` inside a loop
  /// with `tail::no_padding` on several ranks: each knows its own place alone.
  stream_state state() const { return progress_.state(); }

  /// The next loop begins right after the batch at which *x* was taken, with
  /// any number of ranks. Shards are read up to there again, by their reader's
  /// `skip` if it has one. Throws `train_error` for a stream with another
  /// number of shards and for one that is not `resumable`.
  void load_state(const stream_state& x) { progress_.load_state(x); }

private:
  using item = internal::stream_item<sample>;
  using reader = internal::shard_reader<Dataset>;
  using ahead = internal::ordered_prefetcher<std::optional<item>>;

  static constexpr bool is_resumable() {
    if constexpr (requires { Dataset::resumable; })
      return Dataset::resumable;
    else
      return true;
  }

  train_context* context_;
  std::shared_ptr<const Dataset> dataset_;
  internal::stream_progress progress_;
  std::int64_t in_batch_ = -1; // of this rank's own
  internal::device_transfer transfer_;
  internal::loader_activity activity_;
};

/// Reads one pass; owns the threads that read ahead.
template <iterable_dataset Dataset>
class stream_loader<Dataset>::iterator {
public:
  using value_type = batch;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit iterator(stream_loader& loader)
    : loader_(&loader), mine_(loader.progress_.shards()),
      samples_(make_sources()) {
    taken_.resize(static_cast<std::size_t>(options().shards));
    for (auto& [shard, taken] : mine_)
      taken_[static_cast<std::size_t>(shard.index)] = taken;
    ++*this;
  }

  batch& operator*() const noexcept { return *current_; }

  iterator& operator++() {
    current_.reset();
    loader_->in_batch_ = -1;
    auto found = read();
    auto own = static_cast<std::int64_t>(found.size());
    auto offers = loader_->progress_.offer(taken_, own);
    if (loader_->progress_.in_step())
      offers = internal::sum_over_ranks(*loader_->context_, std::move(offers));
    if (auto size = loader_->progress_.agree(offers)) {
      current_.emplace(put_together(std::move(found), *size));
      loader_->in_batch_ = own;
    }
    return *this;
  }
  void operator++(int) { ++*this; }

  bool operator==(std::default_sentinel_t) const noexcept { return !current_; }

private:
  const stream_loader_options& options() const noexcept {
    return loader_->progress_.options();
  }

  std::vector<typename internal::merged_samples<sample>::source>
  make_sources() {
    auto workers = std::min<std::size_t>(
      static_cast<std::size_t>(options().workers), mine_.size());
    std::vector<typename internal::merged_samples<sample>::source> result;
    for (std::size_t i = 0; i < std::max<std::size_t>(workers, 1); ++i) {
      std::vector<std::pair<stream_shard, std::int64_t>> part;
      for (auto k = i; k < mine_.size(); k += std::max<std::size_t>(workers, 1))
        part.push_back(mine_[k]);
      auto shards = std::make_shared<reader>(loader_->dataset_, part);
      if (workers == 0) {
        result.push_back([shards] { return shards->next(); });
        continue;
      }
      threads_.emplace_back(
        new ahead(std::numeric_limits<std::int64_t>::max(), 1,
                  options().batch_size * options().prefetch,
                  [shards](std::stop_token, int, std::int64_t) {
                    internal::use_no_operator_threads(); // one core a worker
                    return shards->next();
                  }));
      result.push_back(
        [thread = threads_.back().get()] { return *thread->next(); });
    }
    return result;
  }

  /// The samples of the next batch, of this rank.
  std::vector<sample> read() {
    auto waits = loader_->activity_.wait_for_batch();
    std::vector<sample> result;
    auto full = static_cast<std::size_t>(options().batch_size);
    while (result.size() < full) {
      auto next = samples_.next();
      if (!next)
        break;
      ++taken_[static_cast<std::size_t>(next->shard)];
      result.push_back(std::move(next->value));
    }
    return result;
  }

  batch put_together(std::vector<sample> found, std::int64_t size) {
    auto wanted = static_cast<std::size_t>(size);
    if (options().tail == tail::pad && loader_->progress_.in_step()) {
      if (first_.empty())
        first_ = found;
      if (first_.empty())
        loader_->progress_.throw_no_samples();
      for (std::size_t i = 0; found.size() < wanted; ++i)
        found.push_back(first_[i % first_.size()]);
    }
    try {
      auto n = static_cast<std::int64_t>(found.size());
      auto result = internal::collate_by(*loader_->dataset_, std::move(found));
      if (internal::has_collate<Dataset, sample> && options().check_rows)
        internal::check_rows(result, n);
      auto tensors = internal::tensors_in(result);
      auto ticket = loader_->transfer_.send(tensors);
      loader_->transfer_.arrive(ticket, tensors);
      return result;
    } catch (...) {
      internal::throw_collate_error(mine_.front().first, wanted);
    }
  }

  stream_loader* loader_;
  std::vector<std::pair<stream_shard, std::int64_t>> mine_;
  std::vector<std::int64_t> taken_; // of each shard, as far as this rank knows
  std::vector<sample> first_;       // of this pass: what padding repeats
  std::vector<internal::owned_ptr<ahead>> threads_;
  internal::merged_samples<sample> samples_; // last: it uses the threads
  mutable std::optional<batch> current_;
};

namespace internal {

data_loader_options common_options(const stream_loader_options& x);

} // namespace internal

/// This rank's loader over the stream *dataset*: it reads every world-size-th
/// shard. Must be called with equal options on every rank. Throws `train_error`
/// for options out of range.
///
/// Samples are put into batches by the dataset's `collate(std::vector<sample>)
/// const` or by `troupe::collate`, in the thread of the loop.
template <iterable_dataset Dataset>
stream_loader<Dataset>
prepare_data_loader(train_context& context,
                    std::shared_ptr<const Dataset> dataset,
                    const stream_loader_options& options = {}) {
  auto device =
    internal::check_loader_options(context, internal::common_options(options));
  return {context, std::move(dataset), options, device};
}

template <iterable_dataset Dataset>
stream_loader<Dataset>
prepare_data_loader(train_context& context, Dataset dataset,
                    const stream_loader_options& options = {}) {
  return prepare_data_loader(
    context, std::make_shared<const Dataset>(std::move(dataset)), options);
}

} // namespace troupe
