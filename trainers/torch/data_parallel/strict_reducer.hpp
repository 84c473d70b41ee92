#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "troupe/trainers/torch/data_parallel/gradient_sink.hpp"
#include "troupe/trainers/torch/data_parallel/kept_gradients.hpp"
#include "troupe/trainers/torch/groups/group_work.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

/// Part of a callback at the end of a backward. The engine drops those when the
/// backward fails: then this looks for steps with what it left.
class failure_watch {
public:
  explicit failure_watch(std::shared_ptr<gradient_sink_state> sink)
    : sink_(std::move(sink)) {}
  failure_watch(const failure_watch&) = default;
  failure_watch(failure_watch&&) = default;
  failure_watch& operator=(const failure_watch&) = delete;
  failure_watch& operator=(failure_watch&&) = delete;
  ~failure_watch() {
    // A thread of a device may be the last one to know the backward. It must
    // not read what the loop's thread uses again.
    if (!sink_ || sink_->owner != std::this_thread::get_id()
        || sink_->backward != backward_state::begun)
      return;
    try {
      sink_->kept->watch_failure();
    } catch (...) {
      // Without memory for samples, only gradients that are left are found.
    }
  }

  const std::shared_ptr<gradient_sink_state>& state() const { return sink_; }

private:
  std::shared_ptr<gradient_sink_state> sink_;
};

/// A Reducer that throws when gradients arrive that it will not average. c10d's
/// own ignores them, and the ranks' weights drift apart.
class strict_reducer final : public c10d::Reducer {
public:
  using c10d::Reducer::Reducer;

  ~strict_reducer() {
    for (auto& [node, key] : node_hooks_)
      node->del_post_hook(key);
  }

  void watch(std::vector<std::string> names, std::shared_ptr<const bool> sync,
             std::shared_ptr<gradient_sink_state> sink) {
    names_ = std::move(names);
    parameters_ = std::make_shared<const variables>(params_);
    arrivals_.resize(names_.size());
    sync_ = std::move(sync);
    sink_ = std::move(sink);
    shown_ = find_shown();
    // An earlier Reducer counted these. One that does not look for unused
    // parameters has no map, and needs a gradient for each.
    if (local_used_map_.defined())
      for (std::size_t i = 0; i < names_.size(); ++i)
        if (sink_->kept->has(i))
          local_used_map_[static_cast<std::int64_t>(i)] = 1;
    for (std::size_t i = 0; i < grad_accumulators_.size(); ++i) {
      auto* node = grad_accumulators_[i].get();
      node_hooks_.emplace_back(
        node, node->add_post_hook(std::make_unique<hook>(*this, i)));
      past_hooks_.push_back(after_each_gradient(
        params_[i], sink_->kept.get(), [this, i] { check_accumulator(i); }));
    }
  }

  /// See `check_backward`.
  void check_finished() const {
    if (sink_->backward == backward_state::ended && expects_gradients())
      refuse_unfinished();
    auto& kept = *sink_->kept;
    auto failed = has_failed();
    if (!failed && !kept.refused())
      return;
    if (kept.has_gradients())
      throw_invalid_argument(
        "rank ", process_group_->getRank(), ": ",
        failed ? "the last backward failed"
               : "a backward failed or was refused",
        " and left gradients that were not averaged with those of the other "
        "ranks: clear them with zero_grad()",
        failed ? ", or let its exception leave the train loop, so that the "
                 "next attempt resumes"
               : " before the next step");
    // Gradients that come now belong to another backward.
    kept.clear();
    if (failed)
      sink_->backward = backward_state::cleared;
  }

  /// Whether the last backward threw and its gradients were not cleared. The
  /// first gradient of a backward may have failed in c10d's own hook, which
  /// comes before this Reducer's.
  bool has_failed() const {
    return sink_->backward == backward_state::begun
           || (waits() && sink_->backward == backward_state::none);
  }

  /// See `refuse_if_unfinished`.
  void check_reusable() const {
    if (waits() || (sink_->learning && !sink_->learned))
      throw_invalid_argument(
        "rank ", process_group_->getRank(),
        ": an earlier backward failed before all gradients were averaged, "
        "so that no others can be: let its exception leave the train loop, so "
        "that the next attempt resumes");
  }

  /// See `regain_gradients`.
  bool regain() {
    namespace impl = torch::autograd::impl;
    auto all = true;
    std::vector<std::size_t> returned;
    for (std::size_t i = 0; i < params_.size(); ++i) {
      auto& x = params_[i];
      auto& mine = grad_accumulators_[i];
      if (impl::try_get_grad_accumulator(x) == mine)
        continue;
      auto& kind = mine->input_metadata(0);
      if (x.dtype() == kind.dtype() && x.device() == kind.device()
          && x.layout() == kind.layout()) {
        put_back(&impl::set_grad_accumulator, x, mine);
        returned.push_back(i);
      } else {
        all = false;
      }
    }
    if (!returned.empty())
      sink_->kept->note_return(returned, sink_->has_averaged);
    return all;
  }

private:
  using variables = torch::autograd::variable_list;

  /// *Weak* is the kind of pointer that this LibTorch takes.
  template <class Weak, class Pointer>
  static void put_back(void (*set)(const at::Tensor&, Weak),
                       const at::Tensor& parameter, const Pointer& node) {
    set(parameter, Weak{node});
  }

  /// Whether a backward began and some gradients of it have not come.
  bool waits() const {
    std::lock_guard lock{mutex_};
    return require_finalize_;
  }

  /// A gradient that has come stays on this rank.
  template <class... Ts>
  [[noreturn]] void refuse(const Ts&... reason) {
    sink_->kept->note_refusal();
    throw_invalid_argument("rank ", process_group_->getRank(), ": ", reason...);
  }

  /// The last backward returned, and c10d still expects gradients of it.
  [[noreturn]] void refuse_unfinished() const {
    auto names = names_without_gradient();
    throw_invalid_argument(
      "rank ", process_group_->getRank(), ": the last backward ",
      names.empty() ? "used parameters less often than the first one"
                    : "gave no gradient to " + names,
      ", and so the gradients of the other parameters were not all "
      "averaged with those of the other ranks: use all outputs of "
      "the forward in the loss, freeze parameters that are not used, "
      "or set data_parallel_options::find_unused_parameters");
  }

  /// Names at most a few: a backward may have left out half of a large model.
  /// Empty if none was left out.
  std::string names_without_gradient() const {
    constexpr std::size_t most = 8;
    std::string result;
    std::size_t n = 0;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (arrivals_[i] != sink_->forwards && ++n <= most)
        result += (n == 1 ? "" : ", ") + names_[i];
    if (n > most)
      result += c10::str(" and ", n - most, " more");
    return n == 0 ? result : (n == 1 ? "parameter " : "parameters ") + result;
  }

  struct hook final : torch::autograd::FunctionPostHook {
    hook(strict_reducer& self, std::size_t index) : self(self), index(index) {}

    variables operator()(const variables& outputs, const variables&) override {
      self.check(index);
      return outputs;
    }

    strict_reducer& self;
    std::size_t index;
  };

  /// The gradient of parameter *index* has arrived.
  void check(std::size_t index) {
    auto expected = expects_gradients();
    auto is_first = sink_->static_graph && !sink_->learned;
    if (is_first && !(*sync_ && expected))
      sink_->bypassed = true;
    if (!*sync_) {
      note_kept(index);
      return;
    }
    if (!expected)
      refuse(
        "a backward reached parameter ", names_[index],
        " without a forward of the data-parallel model since the last "
        "backward, so its gradient would not be averaged with those of "
        "the other ranks: call model.forward(...), not "
        "model->forward(...); add a further loss, such as a penalty, to the "
        "first; gradients that are to stay on this rank need a no_sync() "
        "guard around forward and backward");
    arrivals_[index] = sink_->forwards;
    note_end();
    if (is_first && !std::exchange(sink_->learning, true))
      torch::autograd::Engine::get_default_engine().queue_callback(
        [sink = sink_, rank = process_group_->getRank()] {
          if (sink->delay_queued)
            return;
          sink->learning = false;
          sink->bypassed = true;
          throw_invalid_argument(
            "rank ", rank,
            ": the first backward of a static graph did not begin at "
            "an output of the forward, so its gradients would not be "
            "averaged: compute the loss from what forward returns");
        });
  }

  /// The gradient of parameter *index* has arrived. After `Module::to` it may
  /// come through a new gradient accumulator without the Reducer's hooks.
  void check_accumulator(std::size_t index) {
    if (torch::autograd::get_current_node() == grad_accumulators_[index])
      return;
    if (*sync_)
      refuse("a backward reached parameter ", names_[index],
             ", whose type or device was changed since the last forward of the "
             "data-parallel model, so its gradient would not be averaged with "
             "those of the other ranks: call model.forward(...), not "
             "model->forward(...)");
    note_kept(index);
    if (local_used_map_.defined())
      local_used_map_[static_cast<std::int64_t>(index)] = 1;
  }

  /// Parameter *index* got a gradient that stays on this rank until the next
  /// backward that is averaged.
  void note_kept(std::size_t index) {
    if (sink_->kept->begin_alone())
      torch::autograd::Engine::get_default_engine().queue_callback(
        [kept = sink_->kept] { kept->end_alone(); });
    if (sink_->static_graph && sink_->has_averaged && !is_used(index))
      refuse("parameter ", names_[index],
             " got a gradient within no_sync(), but had none in the first "
             "backward, from which a static graph is learned: it would not be "
             "averaged; set data_parallel_options::static_graph to false");
    sink_->kept->note(index);
  }

  /// Whether the Reducer counts parameter *index* among those that have a
  /// gradient on some rank.
  bool is_used(std::size_t index) const {
    return local_used_map_[static_cast<std::int64_t>(index)].item<int>() != 0;
  }

  /// Notes that this backward has begun, and its end, which an exception would
  /// prevent: also one of the reductions, for which c10d waits in a callback
  /// that is queued after the first one here, and before the second.
  void note_end() {
    if (std::exchange(sink_->backward, backward_state::begun)
        == backward_state::begun)
      return;
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.queue_callback([watch = failure_watch{sink_},
                           parameters = parameters_, shown = shown_, &engine] {
      // All reductions are under way.
      auto here = shown ? shown->wait_for(0) : nullptr;
      engine.queue_callback([sink = watch.state(), parameters, here]() mutable {
        here.reset();
        unmark_views(*parameters);
        sink->backward = backward_state::ended;
        sink->has_averaged = true;
        sink->kept->end();
      });
    });
  }

  /// Makes gradients that are views of their buckets other names of the same
  /// memory, which serve c10d alike: views refuse `detach_()`, and with it
  /// zero_grad() of LibTorch's optimizers.
  static void unmark_views(const variables& parameters) {
    for (auto& x : parameters) {
      auto& gradient = x.mutable_grad();
      if (!gradient.defined() || !gradient.is_view())
        continue;
      at::AutoDispatchBelowADInplaceOrView unmarked;
      gradient = gradient.as_strided(gradient.sizes(), gradient.strides(),
                                     gradient.storage_offset());
    }
  }

  /// Where the group of this Reducer shows its calls; nullptr if it does not.
  std::shared_ptr<shown_calls> find_shown() const {
    try {
      auto device = params_.front().device().type();
      auto group = process_group_->getBackend(device);
      auto showing = dynamic_cast<const showing_group*>(group.get());
      return showing ? showing->shown() : nullptr;
    } catch (const c10::Error&) {
      return nullptr; // A group without backends.
    }
  }

  bool expects_gradients() const {
    std::lock_guard lock{mutex_};
    return expect_autograd_hooks_;
  }

  std::vector<std::string> names_;
  std::shared_ptr<const variables> parameters_;
  std::shared_ptr<const bool> sync_;
  std::shared_ptr<gradient_sink_state> sink_;
  std::shared_ptr<shown_calls> shown_;
  std::vector<std::uint64_t> arrivals_; // by parameter: forward of its gradient
  std::vector<std::pair<torch::autograd::Node*, std::uintptr_t>> node_hooks_;
  std::vector<std::shared_ptr<void>> past_hooks_; // of earlier forwards
};

} // namespace troupe::internal
