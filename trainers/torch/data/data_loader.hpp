#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <typeinfo>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/process/rank_activity.hpp"
#include "troupe/trainers/torch/data/dataset.hpp"
#include "troupe/trainers/torch/data/device_transfer.hpp"
#include "troupe/trainers/torch/data/distributed_sampler.hpp"
#include "troupe/trainers/torch/data/ordered_prefetcher.hpp"
#include "troupe/trainers/torch/operator_threads.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// How `prepare_data_loader` reads a dataset. Names and defaults are, where
/// PyTorch has the option, those of its DataLoader.
struct data_loader_options {
  /// Samples per batch and rank: the global batch is *batch_size* times the
  /// world size.
  std::int64_t batch_size = 1;
  bool shuffle = false;
  /// Which samples an epoch has, such as `weighted_order`, instead of all of
  /// the dataset. Not with *shuffle*. Called on every rank.
  sample_order order = {};
  /// Which batches an epoch has, instead of *batch_size* samples each, such as
  /// samples of similar length together. Not with *shuffle* and *order*. Called
  /// on every rank.
  batch_order batches = {};
  /// Decides, together with the epoch, the order and the random numbers that
  /// datasets are given. Must be equal on all ranks.
  std::uint64_t seed = 0;
  troupe::tail tail = troupe::tail::pad;
  /// Threads that read ahead; 0 reads in the thread of the loop.
  int workers = 0;
  /// Batches per worker that are ready or being read ahead of the loop.
  int prefetch = 2;
  /// Whether batches arrive on the rank's device.
  bool move_to_device = true;
  /// Whether a batch that the dataset makes itself, by `get_batch` or a
  /// `collate`, must have a tensor (or a range) with one row for each sample.
  /// Turn it off for batches that are packed otherwise.
  bool check_rows = true;
};

namespace internal {

/// Where a loader shows how far its loop is, and that it waits for a batch:
/// nowhere in a process that the loop forked.
class loader_activity {
public:
  loader_activity(std::shared_ptr<rank_activity> x = nullptr) noexcept
    : shown_(std::move(x)) {}

  /// That of the rank of *context*.
  explicit loader_activity(train_context& context);

  /// nullptr: nowhere.
  rank_activity* get() const noexcept {
    return owner_.is_here() ? shown_.get() : nullptr;
  }

  /// The loop waits for a batch as long as the result lives.
  std::optional<activity_scope> wait_for_batch() const noexcept {
    if (auto shown = get())
      return std::optional<activity_scope>{std::in_place,
                                           shown->in_data_loader};
    return std::nullopt;
  }

  /// Shows here when the loop of *loader* waits for a batch, and how far a pass
  /// is that has gradients: one of a validation would be taken for an epoch.
  template <class Loader>
  void show(Loader& loader) const {
    loader.activity_ = *this;
  }

private:
  std::shared_ptr<rank_activity> shown_;
  owner_process owner_;
};

/// Samples in the current batch of a loader's loop.
struct current_batch {
  std::int64_t samples = -1; ///< -1: there is none, or they are not known.
  std::uint64_t pass = 0;    ///< That has read it.
  std::uint64_t passes = 0;  ///< Begun so far.
};

/// Ends the current batch when the loop is left, however that is, unless
/// another pass has read it: in `it = loader.begin()` the next one reads before
/// the last one is gone.
struct leave_batch {
  void operator()(current_batch* x) const noexcept {
    if (x->pass == pass)
      x->samples = -1;
  }

  std::uint64_t pass = 0;
};

/// A pass through a loader, which shows its current batch there.
class shown_pass {
public:
  explicit shown_pass(current_batch& where)
    : shown_(&where, leave_batch{++where.passes}) {}

  /// *samples* are in the current batch; -1 as there.
  void show(std::int64_t samples) noexcept {
    shown_->samples = samples;
    shown_->pass = shown_.get_deleter().pass;
  }

private:
  std::unique_ptr<current_batch, leave_batch> shown_;
};

} // namespace internal

/// This rank's batches of a dataset, epoch by epoch:
///
///   loader.set_epoch(epoch);
///   for (auto& [images, labels] : loader)
///     ...
///
/// A pass begins at the start of the epoch, or where `load_state` says. Leaving
/// the loop early joins the threads that read ahead. After an exception of the
/// dataset, `++` of the iterator continues with the next batch. Belongs to the
/// thread of the loop; one pass at a time.
template <map_dataset Dataset>
class data_loader {
public:
  using batch = internal::batch_type<Dataset>;

  data_loader(std::shared_ptr<Dataset> dataset, distributed_sampler sampler,
              const data_loader_options& options, c10::Device device);

  class iterator;

  /// Begins a pass, which the loader must outlive.
  iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// See `distributed_sampler::set_epoch`.
  void set_epoch(std::uint64_t epoch) { sampler_.set_epoch(epoch); }

  /// Batches of this rank in a whole epoch.
  std::int64_t size() const { return sampler_.batches(); }

  /// Samples of an epoch, of all ranks together; batches of a `batch_order`.
  std::int64_t samples() const noexcept { return sampler_.samples(); }

  /// Samples in the current batches of all ranks, without padding; -1 outside
  /// of the loop, for `tail::no_padding` and with a `batch_order`.
  std::int64_t samples_in_batch() const noexcept { return in_batch_.samples; }

  /// Where the loop stands. Inside the loop the current batch counts as done;
  /// batches that were read ahead do not.
  sampler_state state() const noexcept { return sampler_.state(); }

  /// The next loop begins right after the batch at which *x* was taken.
  void load_state(const sampler_state& x) { sampler_.load_state(x); }

  /// The dataset that is read without workers. With workers each reads a copy
  /// of its own, made at the start, unless the dataset can be read when const:
  /// then all read this one, and it must not change during a pass.
  Dataset& dataset() noexcept { return *dataset_; }

private:
  friend class internal::loader_activity;

  struct loaded {
    batch data;
    internal::device_transfer::ticket ticket;
  };

  static loaded load(Dataset& dataset, const internal::epoch_order& order,
                     const sample_generators& random,
                     const internal::device_transfer& transfer,
                     bool checks_rows, std::int64_t k,
                     const std::stop_token& stop = {}) {
    loaded result{internal::read_batch(dataset, order.indices(k), random,
                                       checks_rows, stop),
                  {}};
    result.ticket = transfer.send(internal::tensors_in(result.data));
    return result;
  }

  std::shared_ptr<Dataset> dataset_;
  std::vector<std::shared_ptr<Dataset>> per_worker_;
  distributed_sampler sampler_;
  internal::current_batch in_batch_;
  data_loader_options options_;
  internal::device_transfer transfer_;
  internal::loader_activity activity_;
};

/// Reads one pass; owns the threads that read ahead.
template <map_dataset Dataset>
class data_loader<Dataset>::iterator {
public:
  using value_type = batch;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit iterator(data_loader& loader)
    : loader_(&loader), pass_(loader.in_batch_), order_(loader.sampler_.rest()),
      random_(loader.state().seed, loader.state().epoch) {
    if (loader.options_.workers > 0)
      prefetcher_.reset(new internal::ordered_prefetcher<loaded>(
        order_.batches(), loader.options_.workers,
        std::int64_t{loader.options_.workers} * loader.options_.prefetch,
        [order = order_, random = random_, transfer = loader.transfer_,
         datasets = loader.per_worker_, checks = loader.options_.check_rows](
          std::stop_token stop, int worker, std::int64_t k) {
          internal::use_operator_threads(1); // one core a worker
          return load(*datasets[worker], order, random, transfer, checks, k,
                      stop);
        }));
    ++*this;
  }

  batch& operator*() const noexcept { return current_->data; }

  iterator& operator++() {
    current_.reset();
    pass_.show(-1);
    if (next_ < order_.batches()) {
      auto k = next_++; // a batch that cannot be read is skipped
      auto waits = loader_->activity_.wait_for_batch();
      current_ = prefetcher_
                   ? prefetcher_->next()
                   : load(*loader_->dataset_, order_, random_,
                          loader_->transfer_, loader_->options_.check_rows, k);
      loader_->transfer_.arrive(current_->ticket,
                                internal::tensors_in(current_->data));
      auto before =
        k == 0 ? loader_->state().cursor : order_.cursor_after(k - 1);
      auto after = order_.cursor_after(k);
      loader_->sampler_.advance(after);
      if (loader_->options_.tail != tail::no_padding
          && !loader_->options_.batches) // Padding does not count.
        pass_.show(std::min(after, loader_->sampler_.samples()) - before);
      show_progress();
    } else {
      loader_->sampler_.advance(order_.end());
      if (auto shown = loader_->activity_.get(); shown && trains_)
        shown->pass.end();
    }
    return *this;
  }
  void operator++(int) { ++*this; }

  bool operator==(std::default_sentinel_t) const noexcept { return !current_; }

private:
  void show_progress() const noexcept {
    if (auto shown = loader_->activity_.get(); shown && trains_)
      shown->pass.take(loader_->state().epoch,
                       static_cast<std::uint64_t>(next_),
                       static_cast<std::uint64_t>(order_.batches()), begun_);
  }

  data_loader* loader_;
  internal::shown_pass pass_;
  internal::epoch_order order_;
  internal::rank_activity::clock::rep begun_ = internal::rank_activity::now();
  bool trains_ = c10::GradMode::is_enabled();
  sample_generators random_;
  std::int64_t next_ = 0;
  mutable std::optional<loaded> current_;
  internal::owned_ptr<internal::ordered_prefetcher<loaded>> prefetcher_;
};

template <map_dataset Dataset>
data_loader<Dataset>::data_loader(std::shared_ptr<Dataset> dataset,
                                  distributed_sampler sampler,
                                  const data_loader_options& options,
                                  c10::Device device)
  : dataset_(std::move(dataset)), sampler_(std::move(sampler)),
    options_(options), transfer_(device) {
  for (int i = 0; i < options_.workers; ++i) {
    if constexpr (internal::shared_by_threads<Dataset>)
      per_worker_.push_back(dataset_);
    else
      per_worker_.push_back(std::make_shared<Dataset>(*dataset_));
  }
}

template <map_dataset Dataset>
auto data_loader<Dataset>::begin() -> iterator {
  sampler_.start();
  return iterator{*this};
}

namespace internal {

/// The device for batches under *options*; throws `train_error` for options out
/// of range, as those of *type*, the struct that the user filled in.
c10::Device check_loader_options(train_context& context,
                                 const data_loader_options& options,
                                 const char* type = "data_loader_options");

/// Throws `train_error` if *samples*, those of a *dataset*, are 0: an epoch
/// would train nothing.
void check_has_samples(std::int64_t samples, const std::type_info& dataset);

} // namespace internal

/// This rank's loader over *dataset*: divided among the ranks of *context*, its
/// batches on the rank's device. Must be called with equal arguments on every
/// rank. Throws `train_error` for options out of range, and for a dataset
/// without samples.
///
/// *dataset* has `size()` and either `get(index)`, whose samples are combined
/// by its own `collate(std::vector<sample>) const` or `troupe::collate`, or
/// `get_batch(std::span<const std::int64_t>)`. With `workers` its const
/// functions are called by several threads at once; if they are not const, each
/// thread has a copy.
///
/// A dataset that draws random numbers, such as for augmentation, takes them
/// from a second parameter: `get(index, at::Generator random)`, as in
/// `torch::rand({2}, random)`, or `get_batch(indices, const sample_generators&
/// random)` with `random.of(index)`. Then a sample depends only on seed, epoch
/// and index, for any number of workers and ranks. Do not use LibTorch's
/// default generator: it belongs to the model, and several threads would draw
/// from it in any order.
template <map_dataset Dataset>
data_loader<Dataset>
prepare_data_loader(train_context& context, std::shared_ptr<Dataset> dataset,
                    const data_loader_options& options = {}) {
  auto device = internal::check_loader_options(context, options);
  auto samples = internal::dataset_size(*dataset);
  internal::check_has_samples(samples, typeid(Dataset));
  distributed_sampler sampler{samples,
                              {.batch_size = options.batch_size,
                               .rank = context.rank(),
                               .world_size = context.world_size(),
                               .shuffle = options.shuffle,
                               .seed = options.seed,
                               .tail = options.tail,
                               .order = options.order,
                               .batches = options.batches}};
  data_loader<Dataset> result{std::move(dataset), std::move(sampler), options,
                              device};
  internal::loader_activity{context}.show(result);
  return result;
}

template <map_dataset Dataset>
data_loader<Dataset>
prepare_data_loader(train_context& context, Dataset dataset,
                    const data_loader_options& options = {}) {
  return prepare_data_loader(
    context, std::make_shared<Dataset>(std::move(dataset)), options);
}

} // namespace troupe
