#include "troupe/trainers/torch/torch_backend.hpp"

#include <cstdlib>

#include <ATen/Parallel.h>

#include "troupe/trainers/torch/groups/make_group.hpp"

namespace troupe {

namespace {

/// OpenMP read its environment when the program was loaded, which for a forked
/// rank was before the rank had one.
void apply_thread_count(const train_context& context) {
  if (context.facts().in_process)
    return; // The threads are the whole process's.
  if (auto count = std::getenv("OMP_NUM_THREADS"))
    if (auto threads = std::atoi(count); threads > 0)
      at::set_num_threads(threads);
}

} // namespace

std::shared_ptr<void> torch_backend::start(train_context& context) const {
  apply_thread_count(context);
  context.data_plane() = make_group(context, config);
  return {&context, [](train_context* x) { x->data_plane().reset(); }};
}

} // namespace troupe
