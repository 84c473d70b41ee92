#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "troupe/trainers/torch/loop/batch_feed.hpp"
#include "troupe/trainers/torch/visit_tensors.hpp"

namespace troupe::detail {

/// *Source* is a loader, a reference to one, or a function that makes one.
template <class Source>
struct loader_of {
  using type = std::remove_reference_t<Source>;
};

template <std::invocable Source>
struct loader_of<Source> {
  using type = std::invoke_result_t<Source>;
};

/// Batches of a loader: any range with `size()`, told the epoch if it has
/// `set_epoch`.
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

  std::int64_t size() override {
    return static_cast<std::int64_t>(all().size());
  }

  std::optional<divided_order> divides() override {
    if constexpr (requires {
                    all().state().seed;
                    all().samples();
                  })
      return divided_order{all().samples(), all().state().seed};
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

} // namespace troupe::detail
