#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

namespace c10d {
class Reducer;
}

namespace troupe::internal {

class kept_gradients;

/// The state of the backward of the last forward whose gradients are to be
/// averaged.
enum class backward_state {
  none,    ///< No gradient of it has come.
  begun,   ///< It runs, or it threw.
  ended,   ///< It returned.
  cleared, ///< It threw, and its gradients are gone.
};

/// What the sinks of one Reducer share. The graph may outlive the Reducer.
struct gradient_sink_state {
  std::weak_ptr<c10d::Reducer> reducer;
  bool static_graph = false;
  /// Since the last forward, a backward reached the sink that averages the
  /// gradients at its end, if any come.
  bool delay_queued = false;
  /// A gradient of the backward from which c10d learns the static graph came,
  bool learning = false;
  bool learned = false; ///< and that backward's gradients were averaged.
  /// A backward without averaging ran before that first one. The Reducer has
  /// counted its gradients, so it must be replaced.
  bool bypassed = false;
  std::uint64_t forwards = 0; ///< Those whose gradients are to be averaged.
  backward_state backward = backward_state::none;
  bool has_averaged = false; ///< A backward returned.
  std::thread::id owner = std::this_thread::get_id();
  std::shared_ptr<kept_gradients> kept;
};

/// Sends *outputs* through one identity in the graph, so that backward reaches
/// every parameter that any of them depends on, with an undefined gradient
/// where the loss does not use an output. A static graph counts those: it needs
/// the identity in every step. Until c10d has learned one, it also queues the
/// reduction for the end of a backward in which gradients come:
/// `torch::autograd::grad` and a frozen model have none.
void pass_through_sink(const std::vector<at::Tensor*>& outputs,
                       const std::shared_ptr<gradient_sink_state>& state);

/// Calls *f* after each gradient that backward adds to *parameter*, whichever
/// accumulator adds it, until the result goes or the function is called again
/// for that parameter. Never if another library has taken the only place that
/// LibTorch has for this. *owner* is the model that averages it,
/// nullptr if none does.
std::shared_ptr<void> after_each_gradient(const at::Tensor& parameter,
                                          const void* owner,
                                          std::function<void()> f);

/// Whether another model averages *parameter*.
bool has_other_owner(const at::Tensor& parameter, const void* owner);

} // namespace troupe::internal
