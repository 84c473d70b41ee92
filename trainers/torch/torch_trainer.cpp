#include "troupe/trainers/torch/torch_trainer.hpp"

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/groups/make_group.hpp"
#include "troupe/trainers/torch/operator_threads.hpp"

namespace troupe {

using namespace internal;

namespace {

/// OpenMP read the environment when the program was loaded; a forked rank got
/// its own later.
void apply_thread_count() {
  if (auto count = std::getenv("OMP_NUM_THREADS"))
    if (auto threads = std::atoi(count); threads > 0)
      at::set_num_threads(threads);
}

/// The most threads for the operators of a rank that is a thread; 0: as many as
/// the user has set.
int thread_limit(const rank_facts& x) {
  return x.in_process && !std::getenv("OMP_NUM_THREADS") ? x.threads : 0;
}

} // namespace

void torch_backend::prepare(train_context& context) const {
  if (!context.gpus().empty())
    load_cuda(context.rank());
}

void torch_backend::run(train_context& context,
                        const std::function<void()>& loop) const {
  auto& facts = rank_access{context}.facts();
  if (!facts.in_process)
    apply_thread_count();
  const operator_thread_limit threads{thread_limit(facts)};
  // The thread may be the caller's, who computes on another GPU afterwards.
  c10::OptionalDeviceGuard gpu_of_caller;
  if (facts.in_process && !context.gpus().empty())
    gpu_of_caller.reset_device(
      c10::impl::VirtualGuardImpl{at::kCUDA}.getDevice());
  rank_access{context}.data_plane() = make_group(context, config);
  auto take_down = [](train_context* x) {
    rank_access{*x}.data_plane().reset();
  };
  std::unique_ptr<train_context, decltype(take_down)> plane{&context,
                                                            take_down};
  try {
    loop();
  } catch (const c10::Error& x) {
    throw std::runtime_error{x.what_without_backtrace()};
  }
}

// Called before the first tensor: it loads the CUDA part of LibTorch.
expected<int> count_gpus(const torch_options&) {
  if (auto gpus = gpu_count(); gpus > 0)
    return gpus;
  return failure(ec::invalid_config,
                 "--gpu: LibTorch shows this process no GPU (it needs its CUDA "
                 "part, a driver, and a card that CUDA_VISIBLE_DEVICES does "
                 "not hide)");
}

} // namespace troupe
