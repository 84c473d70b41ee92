#include "tests/unit/runtime/process/no_memory.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> is_scarce;
std::atomic<int> times_refused;
[[maybe_unused]] thread_local bool is_exempt;

} // namespace

#ifndef __SANITIZE_ADDRESS__

// Not inlined: callers in this batch would pair them with malloc and free.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (is_scarce && !is_exempt) {
    ++times_refused;
    throw std::bad_alloc{};
  }
  if (auto result = std::malloc(size == 0 ? 1 : size))
    return result;
  throw std::bad_alloc{};
}

[[gnu::noinline]] void operator delete(void* x) noexcept {
  std::free(x);
}

[[gnu::noinline]] void operator delete(void* x, std::size_t) noexcept {
  std::free(x);
}

#endif

namespace troupe::internal::test {

no_memory_elsewhere::no_memory_elsewhere() {
  is_exempt = true;
  times_refused = 0;
  is_scarce = true;
}

no_memory_elsewhere::~no_memory_elsewhere() {
  is_scarce = false;
}

int no_memory_elsewhere::refused() const {
  return times_refused;
}

} // namespace troupe::internal::test
