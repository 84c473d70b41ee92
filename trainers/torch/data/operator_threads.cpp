#include "troupe/trainers/torch/data/operator_threads.hpp"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace troupe {

void use_no_operator_threads() {
  // LibTorch sets the number once per thread, at the first use.
  (void) at::get_num_threads();
  // at::set_num_threads would also decide for threads that start later. OpenMP
  // keeps one number per thread; its library is the one LibTorch has loaded.
  using function = void (*)(int);
  static const auto set =
    reinterpret_cast<function>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set)
    set(1);
}

} // namespace troupe
