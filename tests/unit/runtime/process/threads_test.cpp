#include "troupe/runtime/process/threads.hpp"

#include <future>
#include <new>

#include <gtest/gtest.h>

namespace troupe::internal::test {
namespace {

TEST(sync_thread_test, a_call_that_throws_does_not_stop_the_next_one) {
  std::promise<void> second;
  int calls = 0;
  sync_thread thread;
  ASSERT_TRUE(thread.start([&] {
    if (++calls == 1)
      throw std::bad_alloc{};
    second.set_value();
    return false;
  }));
  second.get_future().wait();
}

} // namespace
} // namespace troupe::internal::test
