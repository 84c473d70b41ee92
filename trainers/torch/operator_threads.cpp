#include "troupe/trainers/torch/operator_threads.hpp"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace troupe::internal {

namespace {

/// The function *name* of a library that LibTorch has loaded; nullptr: none has
/// it.
template <class Function>
Function find_function(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

} // namespace

void use_operator_threads(int count) {
  // LibTorch sets the number once per thread, at the first use.
  (void) at::get_num_threads();
  // at::set_num_threads would also decide for threads that start later. OpenMP
  // keeps one number per thread; its library is the one LibTorch has loaded.
  static const auto set = find_function<void (*)(int)>("omp_set_num_threads");
  if (set)
    set(count);
  // MKL follows OpenMP, unless at::set_num_threads was called: LibTorch then
  // gives it a number on each thread. 0 takes that back.
  static const auto set_mkl =
    find_function<int (*)(int)>("MKL_Set_Num_Threads_Local");
  if (set_mkl)
    set_mkl(0);
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
