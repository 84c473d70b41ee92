#include "troupe/trainers/torch/data/ordered_prefetcher.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <latch>
#include <stdexcept>

#include <gtest/gtest.h>

#include "tests/support/sanitized.hpp"

using namespace troupe;
using namespace troupe::internal;

TEST(ordered_prefetcher_test, hands_out_items_in_order) {
  ordered_prefetcher<std::int64_t> x{
    1000, 4, 8, [](std::stop_token, int, std::int64_t k) { return k * k; }};
  for (std::int64_t k = 0; k < 1000; ++k)
    EXPECT_EQ(x.next(), k * k);
  EXPECT_EQ(x.next(), std::nullopt);
  EXPECT_EQ(x.next(), std::nullopt);
}

TEST(ordered_prefetcher_test, hands_out_nothing_if_there_is_nothing) {
  ordered_prefetcher<int> x{
    0, 2, 2, [](std::stop_token, int, std::int64_t) { return 1; }};
  EXPECT_EQ(x.next(), std::nullopt);
}

TEST(ordered_prefetcher_test, reads_no_further_ahead_than_its_window) {
  constexpr std::int64_t window = 3;
  std::atomic<std::int64_t> given = 0;
  std::atomic<bool> too_far = false;
  ordered_prefetcher<std::int64_t> x{200, 4, window,
                                     [&](std::stop_token, int, std::int64_t k) {
                                       // next() counts an item as given before
                                       // it returns.
                                       if (k > given + window)
                                         too_far = true;
                                       return k;
                                     }};
  while (x.next())
    ++given;
  EXPECT_FALSE(too_far);
}

TEST(ordered_prefetcher_test, throws_in_place_of_the_item_that_failed) {
  ordered_prefetcher<std::int64_t> x{4, 2, 4,
                                     [](std::stop_token, int, std::int64_t k) {
                                       if (k == 2)
                                         throw std::runtime_error{"item 2"};
                                       return k;
                                     }};
  EXPECT_EQ(x.next(), 0);
  EXPECT_EQ(x.next(), 1);
  EXPECT_THROW(x.next(), std::runtime_error);
  EXPECT_EQ(x.next(), 3);
}

// With a large window it would fill the memory.
TEST(ordered_prefetcher_test, makes_nothing_after_an_empty_item) {
  using item = std::optional<std::int64_t>;
  std::atomic<int> made = 0;
  ordered_prefetcher<item> x{1000, 1, 1000,
                             [&](std::stop_token, int, std::int64_t k) {
                               ++made;
                               return k < 3 ? item{k} : item{};
                             }};
  for (std::int64_t k = 0; k < 3; ++k)
    EXPECT_EQ(x.next().value().value(), k);
  EXPECT_FALSE(x.next().value());
  EXPECT_FALSE(x.next());
  EXPECT_EQ(made, 4);
}

TEST(ordered_prefetcher_test, makes_nothing_after_a_failure_of_what_can_end) {
  using item = std::optional<std::int64_t>;
  std::atomic<int> made = 0;
  ordered_prefetcher<item> x{1000, 1, 1000,
                             [&](std::stop_token, int, std::int64_t k) {
                               ++made;
                               if (k == 1)
                                 throw std::runtime_error{"item 1"};
                               return item{k};
                             }};
  EXPECT_EQ(x.next().value().value(), 0);
  EXPECT_THROW(x.next(), std::runtime_error);
  EXPECT_THROW(x.next(), std::runtime_error);
  EXPECT_EQ(made, 2);
}

TEST(ordered_prefetcher_test, asks_its_makers_to_stop_when_it_is_destroyed) {
  std::latch begun{2};
  std::atomic<int> stopped = 0;
  {
    ordered_prefetcher<int> x{100, 2, 10,
                              [&](std::stop_token stop, int, std::int64_t) {
                                std::mutex mutex;
                                std::condition_variable_any never;
                                std::unique_lock guard{mutex};
                                begun.count_down();
                                never.wait(guard, stop, [] { return false; });
                                ++stopped;
                                return 0;
                              }};
    begun.wait();
  }
  EXPECT_EQ(stopped, 2);
}

TEST(ordered_prefetcher_test, ends_a_process_that_a_maker_forked) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  for (auto throws : {false, true}) {
    std::atomic<int> status = -1;
    auto is_child = false;
    ordered_prefetcher<std::int64_t> x{
      4, 2, 4, [&](std::stop_token, int, std::int64_t k) {
        if (k != 1) {
          if (is_child)
            ::_exit(7); // It has not left.
          return k;
        }
        auto child = ::fork();
        if (child == 0) {
          is_child = true;
          if (throws)
            throw std::runtime_error{"in the child"};
          return k;
        }
        int result = -1;
        while (::waitpid(child, &result, 0) < 0 && errno == EINTR)
          continue;
        status = result;
        return k;
      }};
    for (std::int64_t k = 0; k < 4; ++k)
      EXPECT_EQ(x.next(), k);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), throws ? 1 : 0);
  }
}
