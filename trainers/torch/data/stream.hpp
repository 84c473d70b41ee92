#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/trainers/torch/data/distributed_sampler.hpp"
#include "troupe/trainers/torch/data/ordered_prefetcher.hpp"

namespace troupe {

/// One part of a stream. Every sample of the stream is in exactly one of them,
/// chosen by *index* and *count* alone: by file number, say, or every
/// *count*-th line from line *index* on.
struct stream_shard {
  int index = 0; ///< 0 to `count - 1`.
  int count = 1; ///< Of all ranks together: `stream_loader_options::shards`.
  std::uint64_t seed = 0; ///< With *epoch* and *index*: for random choices.
  std::uint64_t epoch = 0;
  int rank = 0; ///< Who reads it, for what does not decide about samples.
  int world_size = 1;
};

/// How `prepare_data_loader` reads an iterable dataset.
struct stream_loader_options {
  /// Samples per batch and rank.
  std::int64_t batch_size = 1;
  /// Parts of the stream. Rank r of n reads shards r, r + n, r + 2n, ..., one
  /// sample of each in turn. At least one per rank; the same number for the
  /// whole run, so that it can continue with other ranks. 24 divides evenly
  /// among 2, 3, 4, 6, 8, 12 and 24.
  int shards = 24;
  /// What shards get for their random choices. Must be equal on all ranks.
  std::uint64_t seed = 0;
  /// What becomes of ranks whose shards end earlier than those of others.
  troupe::tail tail = troupe::tail::pad;
  /// Threads that read ahead, each some of the rank's shards; one more makes
  /// batches of their samples. They do not change the order. 0 does both in the
  /// thread of the loop.
  int workers = 0;
  /// Batches' worth of samples that each worker may read ahead, and batches
  /// that are ready or being made.
  int prefetch = 2;
  /// Whether batches arrive on the rank's device.
  bool move_to_device = true;
  /// As in `data_loader_options`, of datasets with a `collate`.
  bool check_rows = true;
};

/// Where an epoch of a stream stands; equal on all ranks after the same number
/// of steps.
struct stream_state {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  bool ended = false;              ///< The epoch is over.
  std::vector<std::int64_t> taken; ///< Samples of each shard.

  bool operator==(const stream_state&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(seed, epoch, ended, taken);
  }
};

namespace internal {

/// What `open` of an iterable dataset returns: the samples of a shard, one by
/// one, then nothing.
template <class T>
concept stream_reader = requires(T& x) {
  x.next().has_value();
  *x.next();
};

template <class T>
using reader_of = std::remove_cvref_t<decltype(std::declval<const T&>().open(
  std::declval<const stream_shard&>()))>;

template <class T>
using stream_sample =
  std::remove_cvref_t<decltype(*std::declval<reader_of<T>&>().next())>;

} // namespace internal

/// A dataset without random access: `open(const stream_shard&) const` returns a
/// reader whose `next()` gives an optional sample, nothing at the end. A reader
/// may have `skip(std::int64_t n)`, which goes past its first *n* samples
/// without reading them; it serves to resume.
///
/// `static constexpr bool resumable = false` says that a stream does not give
/// the same samples twice, such as one from a socket.
template <class T>
concept iterable_dataset = requires(const T& x, const stream_shard& shard) {
  x.open(shard);
}
&&internal::stream_reader<internal::reader_of<T>>;

namespace internal {

/// Call it in a catch block: throws a `train_error` that names rank, shard and
/// sample, with the original exception nested in it. A `run_stopped` passes
/// unchanged.
[[noreturn]] void throw_stream_error(const stream_shard& shard,
                                     std::int64_t position);
[[noreturn]] void throw_collate_error(const stream_shard& shard,
                                      std::size_t samples);

/// Throws a `train_error`: a shard of which *taken* samples were taken before
/// ended after *found* when it was read again.
[[noreturn]] void throw_shorter_stream(std::int64_t found, std::int64_t taken);

template <class Sample>
struct stream_item {
  std::int64_t position = 0; ///< Within its shard.
  int shard = 0;
  Sample value;

  bool precedes(const stream_item& x) const noexcept {
    return std::pair{position, shard} < std::pair{x.position, x.shard};
  }
};

/// Reads some shards, one sample of each in turn: by position, then by shard.
/// So several of these merge into the order of all. For one thread at a time.
template <class Dataset>
class shard_reader {
public:
  using item = stream_item<stream_sample<Dataset>>;

  /// *shards* with the samples that were taken of each.
  shard_reader(std::shared_ptr<const Dataset> dataset,
               std::vector<std::pair<stream_shard, std::int64_t>> shards)
    : dataset_(std::move(dataset)) {
    for (auto& [shard, taken] : shards)
      open_.push_back({shard, taken, std::nullopt});
  }

  /// Nothing once all shards have ended. What it throws, it throws each time.
  std::optional<item> next() {
    if (failure_)
      std::rethrow_exception(failure_);
    while (!open_.empty()) {
      auto first = open_.begin();
      for (auto i = first; i != open_.end(); ++i)
        if (std::pair{i->position, i->shard.index}
            < std::pair{first->position, first->shard.index})
          first = i;
      if (auto sample = read(*first))
        return item{first->position++, first->shard.index, std::move(*sample)};
      open_.erase(first);
    }
    return std::nullopt;
  }

private:
  struct open_shard {
    stream_shard shard;
    std::int64_t position;
    std::optional<reader_of<Dataset>> reader;
  };

  std::optional<stream_sample<Dataset>> read(open_shard& x) {
    try {
      if (!x.reader) {
        x.reader.emplace(dataset_->open(x.shard));
        skip(x);
      }
      if (auto sample = x.reader->next())
        return std::optional<stream_sample<Dataset>>{std::move(*sample)};
      return std::nullopt;
    } catch (...) {
      try {
        throw_stream_error(x.shard, x.position);
      } catch (...) {
        failure_ = std::current_exception();
        throw;
      }
    }
  }

  void skip(open_shard& x) {
    if constexpr (requires { x.reader->skip(x.position); }) {
      if (x.position > 0)
        x.reader->skip(x.position);
    } else {
      for (std::int64_t i = 0; i < x.position; ++i)
        if (!x.reader->next())
          throw_shorter_stream(i, x.position);
    }
  }

  std::shared_ptr<const Dataset> dataset_;
  std::vector<open_shard> open_; // ended ones are removed
  std::exception_ptr failure_;
};

/// The samples of a rank's shards, in order, perhaps read ahead by threads.
template <class Sample>
class merged_samples {
public:
  using item = stream_item<Sample>;
  using source = std::function<std::optional<item>()>;

  explicit merged_samples(std::vector<source> sources)
    : sources_(std::move(sources)), heads_(sources_.size()) {}

  std::optional<item> next() {
    std::optional<item>* first = nullptr;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      auto& head = heads_[i];
      if (!head && sources_[i])
        if (head = sources_[i](); !head)
          sources_[i] = nullptr; // it has ended
      if (head && (!first || head->precedes(**first)))
        first = &head;
    }
    return first ? std::exchange(*first, std::nullopt) : std::nullopt;
  }

private:
  std::vector<source> sources_;
  std::vector<std::optional<item>> heads_;
};

/// Where a rank of a stream stands, and what of a step is decided by the
/// batches that all ranks have found.
class stream_progress {
public:
  /// Throws `train_error` for options out of range.
  stream_progress(stream_loader_options options, int rank, int world_size,
                  bool is_resumable);

  void set_epoch(std::uint64_t epoch);
  void start();

  /// Throws `train_error` for the state of a stream with other shards, or in
  /// the middle of one that cannot be resumed.
  void load_state(const stream_state& x);

  /// Throws `train_error` in the middle of a pass with `tail::no_padding` over
  /// several ranks, which know their own place alone.
  stream_state state() const;

  /// This rank's shards in this epoch, with the samples that were taken of
  /// each.
  std::vector<std::pair<stream_shard, std::int64_t>> shards() const;

  /// What this rank tells the others: the samples that were taken of its own
  /// shards if its next batch counts, and how many that batch has. Those of all
  /// ranks are added.
  std::vector<std::int64_t> offer(const std::vector<std::int64_t>& taken,
                                  std::int64_t samples) const;

  /// Samples that each rank's next batch has at most, as all ranks found them
  /// (the sum of their offers); nothing: the epoch is over.
  std::optional<std::int64_t> agree(const std::vector<std::int64_t>& offers);

  /// Whether ranks go step by step, which they have to agree on.
  bool in_step() const noexcept {
    return world_size_ > 1 && options_.tail != tail::no_padding;
  }

  /// Throws a `train_error`: there is nothing to fill a batch with.
  [[noreturn]] void throw_no_samples() const;

  const stream_loader_options& options() const noexcept { return options_; }

private:
  void begin_epoch(std::uint64_t epoch);

  stream_loader_options options_;
  int rank_;
  int world_size_;
  bool is_resumable_;
  stream_state state_;
  pass_start start_;
};

} // namespace internal

} // namespace troupe
