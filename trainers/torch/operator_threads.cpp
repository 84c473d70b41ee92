#include "troupe/trainers/torch/operator_threads.hpp"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace troupe::internal {

void use_operator_threads(int count) {
  // LibTorch sets the number once per thread, at the first use.
  (void) at::get_num_threads();
  // at::set_num_threads would also decide for threads that start later. OpenMP
  // keeps one number per thread; its library is the one LibTorch has loaded.
  using function = void (*)(int);
  static const auto set =
    reinterpret_cast<function>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set)
    set(count);
}

operator_thread_limit::operator_thread_limit(int most)
  : most_(most), before_(at::get_num_threads()) {
  if (most_ > 0 && most_ < before_)
    use_operator_threads(most_);
}

operator_thread_limit::~operator_thread_limit() {
  // The thread's owner may have chosen another number meanwhile.
  if (most_ > 0 && most_ < before_ && at::get_num_threads() == most_)
    use_operator_threads(before_);
}

} // namespace troupe::internal
