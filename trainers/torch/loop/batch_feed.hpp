#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "troupe/trainers/torch/visit_tensors.hpp"

namespace troupe::internal {

/// The samples of all ranks in the order of a seed, or the shards of a stream
/// that get it.
struct divided_order {
  std::int64_t samples = 0;
  std::int64_t shards = 0;
  std::uint64_t seed = 0;

  bool operator==(const divided_order&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(samples, shards, seed);
  }
};

/// What an `epoch_loop` sees of a loader and of the module's steps for its
/// batches, whatever their type is: a pass is
///
///   feed.begin(epoch);
///   while (feed.next()) ... // the current batch
///   feed.end();
class batch_feed {
public:
  virtual ~batch_feed() = default;

  /// Makes the loader if `fit` was given a function.
  virtual void open() = 0;
  /// Batches of a pass, of this rank; nothing for a stream, which ends when it
  /// ends.
  virtual std::optional<std::int64_t> size() = 0;
  /// What the ranks divide among them, if the loader says so.
  virtual std::optional<divided_order> divides() = 0;

  virtual void begin(std::uint64_t epoch) = 0;
  /// Goes to the next batch; false if there is none.
  virtual bool next() = 0;
  /// Ends the pass, also before its last batch.
  virtual void end() noexcept = 0;

  // Of the current batch; the module gets its number.

  /// Samples: the first dimension of the first tensor; 1 if there is none.
  virtual std::int64_t samples() = 0;
  virtual void transfer(at::Device device) = 0;
  virtual void batch_start(std::int64_t index) = 0;
  /// The loss of a training batch; undefined in validation.
  virtual at::Tensor step(std::int64_t index) = 0;
  virtual void batch_end(const at::Tensor& loss, std::int64_t index) = 0;
};

/// *Source* is a loader, a reference to one, or a function that makes one.
template <class Source>
struct loader_of {
  using type = std::remove_reference_t<Source>;
};

template <std::invocable Source>
struct loader_of<Source> {
  using type = std::invoke_result_t<Source>;
};

/// Batches of a loader: any range, with `size()` if it knows that. Gets the
/// epoch if it has `set_epoch`.
template <class Source>
class loader_feed : public batch_feed {
public:
  using loader = typename loader_of<Source>::type;
  using iterator = decltype(std::declval<loader&>().begin());
  using batch = std::remove_reference_t<decltype(*std::declval<iterator&>())>;

  explicit loader_feed(Source&& source)
    : source_(std::forward<Source>(source)) {}

  void open() override {
    if constexpr (std::invocable<Source>)
      made_.reset(new loader(source_()));
  }

  std::optional<std::int64_t> size() override {
    if constexpr (requires { all().size(); })
      return static_cast<std::int64_t>(all().size());
    else
      return std::nullopt;
  }

  std::optional<divided_order> divides() override {
    if constexpr (requires {
                    all().state().seed;
                    all().samples();
                  })
      return divided_order{.samples = all().samples(),
                           .seed = all().state().seed};
    else if constexpr (requires { all().options().shards; })
      return divided_order{.shards = all().options().shards,
                           .seed = all().options().seed};
    else
      return std::nullopt;
  }

  void begin(std::uint64_t epoch) override {
    if constexpr (requires { all().set_epoch(epoch); })
      all().set_epoch(epoch);
    started_ = false;
  }

  bool next() override {
    if (started_) {
      ++*at_;
    } else {
      at_.emplace(all().begin());
      started_ = true;
    }
    return !(*at_ == all().end());
  }

  void end() noexcept override { at_.reset(); }

  std::int64_t samples() override {
    std::optional<std::int64_t> result;
    visit_tensors(current(), [&](at::Tensor& x) {
      if (!result && x.dim() > 0)
        result = x.size(0);
    });
    return result.value_or(1);
  }

protected:
  batch& current() { return **at_; }

private:
  loader& all() {
    if constexpr (std::invocable<Source>)
      return *made_;
    else
      return source_;
  }

  Source source_; // a reference if `fit` was given one
  std::unique_ptr<std::conditional_t<std::invocable<Source>, loader, int>>
    made_;
  std::optional<iterator> at_;
  bool started_ = false;
};

template <class Module, class Source>
class train_feed final : public loader_feed<Source> {
  using base = loader_feed<Source>;
  static_assert(std::same_as<typename base::batch, typename Module::batch>,
                "the loader for training gives another type of batch than the "
                "module's training_step takes");

public:
  train_feed(std::shared_ptr<Module> module, Source&& source)
    : base(std::forward<Source>(source)), module_(std::move(module)) {}

  void transfer(at::Device device) override {
    module_->transfer_batch(this->current(), device);
  }
  void batch_start(std::int64_t index) override {
    module_->on_train_batch_start(this->current(), index);
  }
  at::Tensor step(std::int64_t index) override {
    return module_->training_step(this->current(), index);
  }
  void batch_end(const at::Tensor& loss, std::int64_t index) override {
    module_->on_train_batch_end(loss, this->current(), index);
  }

private:
  std::shared_ptr<Module> module_;
};

template <class Module, class Source>
class validation_feed final : public loader_feed<Source> {
  using base = loader_feed<Source>;
  static_assert(
    std::same_as<typename base::batch, typename Module::validation_batch>,
    "the loader for validation gives another type of batch than the module's "
    "validation_step takes");

public:
  validation_feed(std::shared_ptr<Module> module, Source&& source)
    : base(std::forward<Source>(source)), module_(std::move(module)) {}

  void transfer(at::Device device) override {
    module_->transfer_validation_batch(this->current(), device);
  }
  void batch_start(std::int64_t index) override {
    module_->on_validation_batch_start(this->current(), index);
  }
  at::Tensor step(std::int64_t index) override {
    module_->validation_step(this->current(), index);
    return {};
  }
  void batch_end(const at::Tensor&, std::int64_t index) override {
    module_->on_validation_batch_end(this->current(), index);
  }

private:
  std::shared_ptr<Module> module_;
};

} // namespace troupe::internal
