#include "troupe/callbacks/http/http_server.hpp"

#include <gtest/gtest.h>

namespace troupe::internal::test {
namespace {

using namespace std::chrono_literals;

constexpr auto begin = client_deadline::clock::time_point{} + 1h;

TEST(client_deadline_test, drops_a_client_that_takes_nothing) {
  for (auto is_stream : {false, true}) {
    client_deadline x{begin, 5s, is_stream};
    EXPECT_EQ(x.next(), begin + 5s);
  }
}

// A long document over a slow `ssh -L`.
TEST(client_deadline_test, waits_for_a_client_that_takes_it_slowly) {
  client_deadline x{begin, 5s, false};
  for (auto now = begin; now < begin + 50s; now += 4s) {
    x.extend(now);
    EXPECT_EQ(x.next(), now + 5s);
  }
}

TEST(client_deadline_test, waits_without_end_for_a_stream_only) {
  client_deadline answer{begin, 5s, false}, stream{begin, 5s, true};
  for (auto now = begin; now < begin + 10min; now += 4s) {
    answer.extend(now);
    stream.extend(now);
    EXPECT_EQ(stream.next(), now + 5s);
  }
  EXPECT_EQ(answer.next(), begin + 60s);
  EXPECT_EQ(client_deadline::never().next(),
            client_deadline::clock::time_point::max());
  EXPECT_LT(client_deadline{}.next(), begin);
}

} // namespace
} // namespace troupe::internal::test
