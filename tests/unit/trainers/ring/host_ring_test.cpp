#include "troupe/trainers/ring/ring_thread.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <latch>
#include <optional>

#include <sys/wait.h>
#include <unistd.h>

#include "ring_fixture.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;
using test::call_number;
using test::on_hosts;
using test::ring_ports;

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& x) {
  return std::as_writable_bytes(std::span{x});
}

void add_floats(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += sizeof(float)) {
    float x = 0;
    float y = 0;
    std::memcpy(&x, to + i, sizeof(x));
    std::memcpy(&y, from + i, sizeof(y));
    x += y;
    std::memcpy(to + i, &x, sizeof(x));
  }
}

/// Fractions whose sum depends on the order.
std::vector<float> part(std::size_t host, std::size_t count) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = static_cast<float>(i * (host + 3) % 1009)
                / (static_cast<float>(host) + 7.0F);
  return result;
}

expected<void> sum(host_ring& ring, std::vector<float>& data,
                   const host_ring::call& x) {
  return ring.run(
    ring.all_reduce(x, bytes_of(data), sizeof(float), add_floats));
}

bool mentions(const expected<void>& x, const std::string& what) {
  return !x && x.error().message.find(what) != std::string::npos;
}

struct ring_case {
  std::size_t hosts;
  bool encrypted;
};

class host_ring_test : public testing::TestWithParam<ring_case> {
protected:
  std::size_t hosts() const { return GetParam().hosts; }

  void on_ring(const std::function<void(host_ring&, std::size_t)>& body) {
    ring_ports ports{hosts(), GetParam().encrypted};
    on_hosts(hosts(), [&](std::size_t host) {
      auto ring = ports.ring(host);
      body(*ring, host);
    });
  }
};

TEST_P(host_ring_test, sums_to_the_same_bits_on_all_hosts) {
  std::vector<std::vector<float>> sums(hosts());
  on_ring([&](host_ring& ring, std::size_t host) {
    for (std::size_t count : {0, 1, 63, 1021, 700'001}) {
      auto data = part(host, count);
      auto done = sum(ring, data, call_number(1));
      EXPECT_TRUE(done) << done.error().message;
      sums[host].insert(sums[host].end(), data.begin(), data.end());
    }
  });
  std::size_t at = 0;
  for (std::size_t count : {0, 1, 63, 1021, 700'001}) {
    std::vector<double> exact(count);
    for (std::size_t host = 0; host < hosts(); ++host) {
      auto mine = part(host, count);
      for (std::size_t i = 0; i < count; ++i)
        exact[i] += static_cast<double>(mine[i]);
    }
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_NEAR(sums[0][at + i], exact[i], 1e-3) << i << " of " << count;
    at += count;
  }
  for (auto& x : sums)
    EXPECT_EQ(x, sums[0]);
}

TEST_P(host_ring_test, runs_many_jobs_as_one_stream) {
  on_ring([&](host_ring& ring, std::size_t host) {
    std::vector<std::vector<float>> data(60);
    host_ring::ticket last = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i].assign(i % 5 == 0 ? 300'000 : i, static_cast<float>(host + i));
      last = ring.all_reduce(call_number(1), bytes_of(data[i]), sizeof(float),
                             add_floats);
    }
    auto done = ring.run(last);
    ASSERT_TRUE(done) << done.error().message;
    auto n = hosts();
    for (std::size_t i = 0; i < data.size(); ++i)
      EXPECT_EQ(data[i],
                std::vector<float>(
                  data[i].size(), static_cast<float>(n * i + n * (n - 1) / 2)));
  });
}

TEST_P(host_ring_test, copies_the_data_of_any_host) {
  on_ring([&](host_ring& ring, std::size_t host) {
    for (std::size_t root = 0; root < hosts(); ++root)
      for (std::size_t count : {0, 1, 500'000}) {
        auto data = part(host, count);
        auto done =
          ring.run(ring.broadcast(call_number(2), bytes_of(data), root));
        EXPECT_TRUE(done) << done.error().message;
        EXPECT_EQ(data, part(root, count));
      }
  });
}

TEST_P(host_ring_test, gathers_blocks_of_different_sizes) {
  on_ring([&](host_ring& ring, std::size_t host) {
    std::vector<std::vector<float>> data(hosts());
    std::vector<std::span<std::byte>> blocks;
    for (std::size_t i = 0; i < hosts(); ++i) {
      data[i] = part(i, 40'000 * i + 1);
      if (i != host)
        data[i].assign(data[i].size(), -1);
      blocks.push_back(bytes_of(data[i]));
    }
    auto done = ring.run(ring.all_gather(call_number(3), blocks));
    EXPECT_TRUE(done) << done.error().message;
    for (std::size_t i = 0; i < hosts(); ++i)
      EXPECT_EQ(data[i], part(i, 40'000 * i + 1));
  });
}

/// Floats of block *i*; block 1 is empty.
std::size_t size_of_block(std::size_t i) {
  return i == 1 ? 0 : 30'000 * i + 7;
}

std::size_t size_of_blocks(std::size_t hosts) {
  std::size_t result = 0;
  for (std::size_t i = 0; i < hosts; ++i)
    result += size_of_block(i);
  return result;
}

std::vector<std::span<std::byte>> blocks_of(std::vector<float>& data,
                                            std::size_t hosts) {
  std::vector<std::span<std::byte>> result;
  auto rest = bytes_of(data);
  for (std::size_t i = 0; i < hosts; ++i) {
    result.push_back(rest.first(size_of_block(i) * sizeof(float)));
    rest = rest.subspan(result.back().size());
  }
  return result;
}

/// The floats of *block*.
std::vector<float> floats_of(std::span<std::byte> block) {
  std::vector<float> result(block.size() / sizeof(float));
  if (!result.empty())
    std::memcpy(result.data(), block.data(), block.size());
  return result;
}

TEST_P(host_ring_test, sums_to_one_host_alone) {
  on_ring([&](host_ring& ring, std::size_t host) {
    for (std::size_t root = 0; root < hosts(); ++root)
      for (std::size_t count : {0, 1, 500'000}) {
        auto data = part(host, count);
        auto done = ring.run(ring.reduce(call_number(2), bytes_of(data),
                                         sizeof(float), add_floats, root));
        EXPECT_TRUE(done) << done.error().message;
        std::vector<float> sum(count);
        for (std::size_t i = 1; i <= hosts(); ++i) {
          auto more = part((root + i) % hosts(), count);
          for (std::size_t j = 0; j < count; ++j)
            sum[j] = i == 1 ? more[j] : sum[j] + more[j];
        }
        if (host == root) {
          EXPECT_EQ(data, sum);
        }
      }
  });
}

TEST_P(host_ring_test, sums_a_block_to_each_host) {
  on_ring([&](host_ring& ring, std::size_t host) {
    auto data = part(host, size_of_blocks(hosts()));
    auto blocks = blocks_of(data, hosts());
    auto done = ring.run(
      ring.reduce_scatter(call_number(2), blocks, sizeof(float), add_floats));
    EXPECT_TRUE(done) << done.error().message;
    std::vector<float> sum;
    for (std::size_t i = 1; i <= hosts(); ++i) {
      auto whole = part((host + i) % hosts(), data.size());
      auto more = floats_of(blocks_of(whole, hosts())[host]);
      sum.resize(more.size());
      for (std::size_t j = 0; j < sum.size(); ++j)
        sum[j] = i == 1 ? more[j] : sum[j] + more[j];
    }
    EXPECT_EQ(floats_of(blocks[host]), sum);
  });
}

TEST_P(host_ring_test, moves_blocks_to_and_from_any_host) {
  on_ring([&](host_ring& ring, std::size_t host) {
    for (std::size_t root = 0; root < hosts(); ++root) {
      auto whole = part(root, size_of_blocks(hosts()));
      auto data = host == root ? whole : std::vector<float>(whole.size());
      auto blocks = blocks_of(data, hosts());
      auto given = blocks_of(whole, hosts());
      auto done = ring.run(ring.scatter(call_number(2), blocks, root));
      EXPECT_TRUE(done) << done.error().message;
      EXPECT_EQ(floats_of(blocks[host]), floats_of(given[host]));
      if (host == root)
        for (std::size_t i = 0; i < hosts(); ++i)
          if (i != root)
            std::ranges::fill(blocks[i], std::byte{0});
      done = ring.run(ring.gather(call_number(3), blocks, root));
      EXPECT_TRUE(done) << done.error().message;
      if (host == root) {
        EXPECT_EQ(data, whole);
      }
    }
  });
}

TEST_P(host_ring_test, works_on_a_thread_of_its_own) {
  on_ring([&](host_ring& ring, std::size_t host) {
    ring_thread thread{ring};
    std::vector<float> first(200'000, static_cast<float>(host));
    std::vector<float> second(10, 1.0F);
    auto one = ring.all_reduce(call_number(1), bytes_of(first), sizeof(float),
                               add_floats);
    ASSERT_TRUE(thread.start(one));
    auto two = ring.all_reduce(call_number(1), bytes_of(second), sizeof(float),
                               add_floats);
    ASSERT_TRUE(thread.start(two));
    EXPECT_TRUE(thread.wait(one));
    EXPECT_TRUE(thread.wait(two));
    auto n = hosts();
    EXPECT_EQ(first.back(), static_cast<float>(n * (n - 1) / 2));
    EXPECT_EQ(second.back(), static_cast<float>(n));
    // And again on this thread.
    EXPECT_TRUE(sum(ring, second, call_number(4)));
  });
}

std::vector<ring_case> ring_cases() {
  std::vector<ring_case> result{{1, false}, {2, false}, {3, false}, {5, false}};
#ifdef TROUPE_TEST_TLS
  result.push_back({2, true});
  result.push_back({3, true});
#endif
  return result;
}

INSTANTIATE_TEST_SUITE_P(hosts, host_ring_test, testing::ValuesIn(ring_cases()),
                         [](auto& info) {
                           return std::to_string(info.param.hosts)
                                  + (info.param.encrypted ? "_encrypted"
                                                          : "_plain");
                         });

TEST(host_ring_failure_test, hosts_that_call_something_else_learn_it) {
  ring_ports ports{2, false};
  on_hosts(2, [&](std::size_t host) {
    auto ring = ports.ring(host);
    std::vector<float> data(host == 0 ? 300'000 : 10, 1);
    auto done = sum(*ring, data, call_number(host == 0 ? 7 : 8));
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ec::invalid_argument);
    for (auto& x : {"collective 7", "collective 8",
                    host == 0 ? "host b (ranks 2-3)" : "host a (ranks 0-1)"})
      EXPECT_TRUE(mentions(done, x)) << done.error().message;
    // The ring is of no use any more.
    auto again = sum(*ring, data, call_number(9));
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error(), done.error());
  });
}

TEST(host_ring_failure_test, names_the_host_that_is_late) {
  ring_ports ports{2, false};
  std::latch over{2};
  on_hosts(2, [&](std::size_t host) {
    auto ring = ports.ring(host);
    if (host == 0) {
      std::vector<float> data(10, 1);
      auto done = sum(*ring, data, call_number(1, 30ms));
      EXPECT_TRUE(mentions(done, "host b (ranks 2-3) did not arrive within "
                                 "30 ms"))
        << (done ? "" : done.error().message);
      EXPECT_EQ(done.error().code, ec::timeout);
    }
    over.arrive_and_wait();
  });
}

TEST(host_ring_failure_test, an_abort_from_another_thread_ends_a_wait) {
  ring_ports ports{2, false};
  std::latch over{2};
  on_hosts(2, [&](std::size_t host) {
    auto ring = ports.ring(host);
    if (host == 0) {
      std::thread control{[&] {
        ring->abort({ec::stopped, "the run is to stop"});
      }};
      std::vector<float> data(3'000'000, 1); // more than sockets hold
      auto done = sum(*ring, data, call_number(1));
      control.join();
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error(), (error{ec::stopped, "the run is to stop"}));
    }
    over.arrive_and_wait();
    if (host == 1) {
      std::vector<float> data(3'000'000, 1);
      auto done = sum(*ring, data, call_number(1));
      EXPECT_TRUE(mentions(done, "host a (ranks 0-1) has left the group"))
        << (done ? "" : done.error().message);
    }
  });
}

TEST(host_ring_failure_test, a_killed_process_is_named_by_its_host) {
  ring_ports ports{2, false};
  auto victim = ::fork();
  if (victim == 0) {
    auto ring = ports.ring(1);
    std::vector<float> data(10, 1);
    ::_exit(sum(*ring, data, call_number(1)) && ::raise(SIGKILL) == 0 ? 0 : 1);
  }
  auto ring = ports.ring(0);
  std::vector<float> data(10, 1);
  EXPECT_TRUE(sum(*ring, data, call_number(1)));
  auto done = sum(*ring, data, call_number(1));
  int status = 0;
  ASSERT_EQ(::waitpid(victim, &status, 0), victim);
  EXPECT_TRUE(WIFSIGNALED(status));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ec::rank_failed);
  EXPECT_TRUE(mentions(done, "host b (ranks 2-3) has left the group"))
    << done.error().message;
}

TEST(host_ring_failure_test, the_watch_ends_a_wait) {
  ring_ports ports{2, false};
  std::latch over{2};
  on_hosts(2, [&](std::size_t host) {
    auto ring = ports.ring(host);
    if (host == 0) {
      ring->watch([] { return error{ec::rank_failed, "rank 1 died"}; });
      std::vector<float> data(10, 1);
      EXPECT_TRUE(mentions(sum(*ring, data, call_number(1)), "rank 1 died"));
    }
    over.arrive_and_wait();
  });
}

} // namespace

} // namespace troupe::internal
