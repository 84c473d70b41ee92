#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/data/stream.hpp"
#include "troupe/trainers/torch/operator_threads.hpp"

namespace troupe {

namespace internal {

/// The sum of *x* of all ranks; a collective.
std::vector<std::int64_t> sum_over_ranks(train_context& context,
                                         std::vector<std::int64_t> x);

/// What a loop over a stream of *Dataset* yields.
template <class Dataset>
using stream_batch = decltype(collate_by(
  std::declval<const Dataset&>(), std::vector<stream_sample<Dataset>>{}));

/// A batch on its way to the device.
template <class Batch>
struct sent_batch {
  Batch data;
  device_transfer::ticket ticket;
};

/// A rank's next samples, as a batch if it need not wait for the other ranks.
template <class Dataset>
struct found_samples {
  std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(shards.size());
  }

  std::vector<int> shards; ///< Of each sample.
  std::optional<sent_batch<stream_batch<Dataset>>> batch;
  std::exception_ptr failure; ///< Why there is no batch of them.
  /// Those that still have to become a batch, and those that padding repeats.
  std::vector<stream_sample<Dataset>> samples;
};

/// Merges the samples of a rank's shards, read ahead by threads of its own if
/// there are workers, and makes batches of them. One thread calls `next`, any
/// thread `put_together`.
template <class Dataset>
class stream_batches {
public:
  using sample = stream_sample<Dataset>;
  using batch = sent_batch<stream_batch<Dataset>>;
  using found = found_samples<Dataset>;

  /// *shards* of the rank, with the samples that were taken of each. *waits*:
  /// ranks agree on each step.
  stream_batches(std::shared_ptr<const Dataset> dataset,
                 std::vector<std::pair<stream_shard, std::int64_t>> shards,
                 const stream_loader_options& options, bool waits,
                 device_transfer transfer)
    : dataset_(std::move(dataset)), first_shard_(shards.front().first),
      options_(options), waits_(waits), transfer_(std::move(transfer)),
      samples_(make_sources(shards)) {}

  /// Samples of the next batch; none once all shards have ended. What the
  /// dataset throws when it reads, it throws each time.
  found next(const std::stop_token& stop = {}) {
    auto result = read(stop);
    auto is_whole = result.size() == options_.batch_size;
    auto is_padded = waits_ && options_.tail == tail::pad;
    auto repeats = is_padded && std::exchange(is_first_, false);
    // Ranks agree on the size of a part, or leave it out.
    if (!is_whole && (is_padded || options_.tail == tail::drop_last))
      return result;
    if (result.samples.empty())
      return result;
    try {
      result.batch.emplace(put_together(
        repeats ? result.samples : std::exchange(result.samples, {})));
    } catch (...) {
      result.failure = std::current_exception();
    }
    return result;
  }

  /// The batch of *samples*. Throws as `throw_collate_error`.
  batch put_together(std::vector<sample> samples) const {
    auto n = samples.size();
    try {
      batch result{collate_by(*dataset_, std::move(samples)), {}};
      if (has_collate<Dataset, sample> && options_.check_rows)
        check_rows(result.data, static_cast<std::int64_t>(n));
      result.ticket = transfer_.send(tensors_in(result.data));
      return result;
    } catch (...) {
      throw_collate_error(first_shard_, n);
    }
  }

private:
  using item = stream_item<sample>;
  using reader = shard_reader<Dataset>;
  using ahead = ordered_prefetcher<std::optional<item>>;
  using source = typename merged_samples<sample>::source;

  std::vector<source>
  make_sources(const std::vector<std::pair<stream_shard, std::int64_t>>& mine) {
    auto workers =
      std::min(static_cast<std::size_t>(options_.workers), mine.size());
    auto parts = std::max<std::size_t>(workers, 1);
    std::vector<source> result;
    for (std::size_t i = 0; i < parts; ++i) {
      std::vector<std::pair<stream_shard, std::int64_t>> part;
      for (auto k = i; k < mine.size(); k += parts)
        part.push_back(mine[k]);
      auto shards = std::make_shared<reader>(dataset_, part);
      if (workers == 0) {
        result.push_back([shards] { return shards->next(); });
        continue;
      }
      readers_.emplace_back(
        new ahead(std::numeric_limits<std::int64_t>::max(), 1,
                  options_.batch_size * options_.prefetch,
                  [shards](std::stop_token, int, std::int64_t) {
                    use_operator_threads(1); // one core a worker
                    return shards->next();
                  }));
      result.push_back(
        [thread = readers_.back().get()] { return *thread->next(); });
    }
    return result;
  }

  found read(const std::stop_token& stop) {
    found result;
    while (result.size() < options_.batch_size) {
      if (stop.stop_requested())
        throw run_stopped{{ec::stopped, "no one waits for this batch"}};
      auto next = samples_.next();
      if (!next)
        break;
      result.shards.push_back(next->shard);
      result.samples.push_back(std::move(next->value));
    }
    return result;
  }

  std::shared_ptr<const Dataset> dataset_;
  stream_shard first_shard_;
  stream_loader_options options_;
  bool waits_;
  bool is_first_ = true;
  device_transfer transfer_;
  std::vector<owned_ptr<ahead>> readers_;
  merged_samples<sample> samples_; // last: it uses the readers
};

} // namespace internal

/// This rank's batches of an iterable dataset, epoch by epoch, used as a
/// `data_loader` is. Each step is a small collective, except with
/// `tail::no_padding`: the ranks agree on whether all have a batch, and each
/// knows the place of all. So all ranks leave a loop at the same step.
///
/// A pass begins at the start of the epoch, or where `load_state` says. Leaving
/// the loop early joins the threads that read ahead, once each has its current
/// sample or batch. An exception of the dataset ends the pass. Belongs to the
/// thread of the loop; one pass at a time.
template <iterable_dataset Dataset>
class stream_loader {
public:
  using sample = internal::stream_sample<Dataset>;
  using batch = internal::stream_batch<Dataset>;
  static_assert(std::copy_constructible<sample>,
                "samples of a stream are copied where tail::pad repeats them");

  stream_loader(train_context& context, std::shared_ptr<const Dataset> dataset,
                const stream_loader_options& options, c10::Device device)
    : context_(&context), dataset_(std::move(dataset)),
      progress_(options, context.rank(), context.world_size(), is_resumable()),
      transfer_(device), activity_(context) {}

  class iterator;

  /// Begins a pass, which the loader must outlive.
  iterator begin() {
    progress_.start();
    return iterator{*this};
  }
  std::default_sentinel_t end() const noexcept { return {}; }

  const stream_loader_options& options() const noexcept {
    return progress_.options();
  }

  /// Chooses the epoch of the next pass. A place from `load_state` is kept if
  /// it belongs to this epoch.
  void set_epoch(std::uint64_t epoch) { progress_.set_epoch(epoch); }

  /// Samples in this rank's current batch, without those that `tail::pad` has
  /// added; -1 outside of the loop, and where ranks may have different numbers
  /// of batches: with `tail::no_padding` on several ranks.
  std::int64_t own_samples_in_batch() const noexcept {
    return progress_.in_step() || context_->world_size() == 1
             ? in_batch_.samples
             : -1;
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
  using found = internal::found_samples<Dataset>;
  using batches = internal::stream_batches<Dataset>;
  using ahead = internal::ordered_prefetcher<found>;

  static constexpr bool is_resumable() {
    if constexpr (requires { Dataset::resumable; })
      return Dataset::resumable;
    else
      return true;
  }

  train_context* context_;
  std::shared_ptr<const Dataset> dataset_;
  internal::stream_progress progress_;
  internal::current_batch in_batch_;
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
    : loader_(&loader), pass_(loader.in_batch_),
      taken_(static_cast<std::size_t>(options().shards)) {
    auto mine = loader.progress_.shards();
    for (auto& [shard, taken] : mine) {
      taken_[static_cast<std::size_t>(shard.index)] = taken;
      is_resumed_ = is_resumed_ || taken > 0;
    }
    batches_ =
      std::make_shared<batches>(loader.dataset_, std::move(mine), options(),
                                loader.progress_.in_step(), loader.transfer_);
    if (options().workers > 0)
      ahead_.reset(new ahead(
        std::numeric_limits<std::int64_t>::max(), 1, options().prefetch,
        [all = batches_](const std::stop_token& stop, int, std::int64_t) {
          internal::use_operator_threads(1);
          return all->next(stop);
        }));
    ++*this;
  }

  batch& operator*() const noexcept { return *current_; }

  iterator& operator++() {
    current_.reset();
    pass_.show(-1);
    auto next = take();
    auto own = next.size();
    for (auto shard : next.shards)
      ++taken_[static_cast<std::size_t>(shard)];
    auto offers = loader_->progress_.offer(taken_, own);
    if (loader_->progress_.in_step())
      offers = internal::sum_over_ranks(*loader_->context_, std::move(offers));
    if (auto size = loader_->progress_.agree(offers)) {
      complete(std::move(next), static_cast<std::size_t>(*size));
      pass_.show(own);
    }
    return *this;
  }
  void operator++(int) { ++*this; }

  bool operator==(std::default_sentinel_t) const noexcept { return !current_; }

private:
  const stream_loader_options& options() const noexcept {
    return loader_->options();
  }

  found take() {
    auto waits = loader_->activity_.wait_for_batch();
    return ahead_ ? *ahead_->next() : batches_->next();
  }

  /// Makes *x* the current batch, of *wanted* samples.
  void complete(found x, std::size_t wanted) {
    if (first_.empty() && !is_resumed_)
      first_ = x.samples;
    if (x.failure)
      std::rethrow_exception(x.failure);
    if (!x.batch) {
      pad(x.samples, wanted);
      x.batch.emplace(batches_->put_together(std::move(x.samples)));
    }
    current_.emplace(std::move(x.batch->data));
    loader_->transfer_.arrive(x.batch->ticket, internal::tensors_in(*current_));
  }

  /// Repeats the first samples of the epoch until there are *wanted*.
  void pad(std::vector<sample>& samples, std::size_t wanted) {
    if (samples.size() >= wanted)
      return;
    if (first_.empty() && is_resumed_)
      first_ = read_first();
    if (first_.empty())
      loader_->progress_.throw_no_samples();
    for (std::size_t i = 0; samples.size() < wanted; ++i)
      samples.push_back(first_[i % first_.size()]);
  }

  /// Reads the rank's first samples of the epoch, as many as a batch has: they
  /// were taken before this pass.
  std::vector<sample> read_first() const {
    auto mine = loader_->progress_.shards();
    for (auto& [shard, taken] : mine)
      taken = 0;
    internal::shard_reader<Dataset> reader{loader_->dataset_, std::move(mine)};
    std::vector<sample> result;
    while (static_cast<std::int64_t>(result.size()) < options().batch_size) {
      auto next = reader.next();
      if (!next)
        break;
      result.push_back(std::move(next->value));
    }
    return result;
  }

  stream_loader* loader_;
  internal::shown_pass pass_;       // with samples of this rank's own
  std::vector<std::int64_t> taken_; // of each shard, as far as this rank knows
  bool is_resumed_ = false;         // samples were taken before this pass
  std::vector<sample> first_;       // of the epoch: what padding repeats
  std::shared_ptr<batches> batches_;
  internal::owned_ptr<ahead> ahead_; // with workers; reads *batches_*
  mutable std::optional<batch> current_;
};

namespace internal {

/// As of a `data_loader`.
c10::Device check_loader_options(train_context& context,
                                 const stream_loader_options& options);

} // namespace internal

/// This rank's loader over the stream *dataset*: it reads every world-size-th
/// shard. Must be called with equal options on every rank. Throws `train_error`
/// for options out of range.
///
/// Samples are put into batches by the dataset's `collate(std::vector<sample>)
/// const` or by `troupe::collate`. With `workers` a thread of its own does
/// that, ahead of the loop, except for batches that padding fills.
template <iterable_dataset Dataset>
stream_loader<Dataset>
prepare_data_loader(train_context& context,
                    std::shared_ptr<const Dataset> dataset,
                    const stream_loader_options& options = {}) {
  auto device = internal::check_loader_options(context, options);
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
