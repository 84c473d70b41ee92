#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

class train_context;

template <class Signature>
class rank_hook;

namespace internal {

template <class F, class Other>
concept other_than = !std::same_as<std::decay_t<F>, Other>;

template <class F, class... Args>
concept callable_with =
  std::invocable<std::add_lvalue_reference_t<std::decay_t<F>>, Args...>;

/// What a *Hook* with arguments *Args* can call, except itself.
template <class F, class Hook, class... Args>
concept hook_body = other_than<F, Hook> && callable_with<F, Args...>;

} // namespace internal

/// The user's code that ranks call: a function or a captureless lambda, which
/// another process of the same program finds by its address, or a closure,
/// which runs in this process only.
template <class... Args>
class rank_hook<void(Args...)> {
public:
  using function = void (*)(Args...);

  rank_hook() = default;

  template <internal::hook_body<rank_hook, Args...> F>
  rank_hook(F&& f) {
    if constexpr (std::is_convertible_v<F, function>)
      function_ = static_cast<function>(f);
    else
      closure_ = std::forward<F>(f);
  }

  /// The hook that an `address` names in this process.
  static rank_hook from_address(const void* address) {
    rank_hook result;
    result.function_ = reinterpret_cast<function>(const_cast<void*>(address));
    return result;
  }

  /// Where the code of the function is; nullptr for a closure or no hook.
  const void* address() const noexcept {
    return reinterpret_cast<const void*>(function_);
  }

  bool is_closure() const noexcept { return static_cast<bool>(closure_); }

  explicit operator bool() const noexcept { return function_ || closure_; }

  void operator()(Args... args) const {
    if (function_)
      function_(std::forward<Args>(args)...);
    else
      closure_(std::forward<Args>(args)...);
  }

private:
  function function_ = nullptr;
  std::function<void(Args...)> closure_;
};

/// What every rank calls on the thread of its loop, in its own process. An
/// exception of a hook fails that rank, with a sentence that names the hook.
struct rank_hooks {
  /// Before the loop, and before the data plane of a trainer is set up.
  rank_hook<void(train_context&)> before_loop;

  /// After the loop, if `before_loop` has returned: the error is `ec::none` if
  /// the loop returned, `ec::stopped` if it left when asked to. An exception
  /// after a failed loop goes to the rank's log; the loop's failure stays.
  rank_hook<void(train_context&, const error&)> after_loop;

  /// At the end of every `report`, once it is stored (with
  /// `report_options::barrier` off: sent). The checkpoint is the one that this
  /// rank added files to. May not report itself.
  rank_hook<void(train_context&, const metrics&,
                 const std::optional<checkpoint>&)>
    on_report;
};

} // namespace troupe
