#include "troupe/trainers/torch/groups/hierarchical_group.hpp"

#include <array>
#include <cmath>
#include <latch>
#include <memory>

#include <sys/socket.h>

#include <gtest/gtest.h>

#include "tests/support/torch_ranks.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

using tensors = std::vector<at::Tensor>;

const std::vector<std::string> nothing(4);

/// How a sum of *count* elements failed; `ec::none` if it did not.
error sum_of(c10d::Backend& group, std::int64_t count) {
  try {
    tensors x{at::ones({count})};
    group.allreduce(x)->wait();
  } catch (const train_error& e) {
    return e.reason();
  }
  return {};
}

void expect_mention(const error& reason, const std::string& what) {
  test::check(reason.message.find(what) != std::string::npos,
              "'" + reason.message + "' lacks " + what);
}

TEST(hierarchical_group_test, many_hosts_get_the_same_bits) {
  for (auto [ranks, hosts] : {std::pair{4, 4}, std::pair{5, 3}}) {
    test::hierarchical_meeting_place place{ranks, false, hosts};
    auto failures = test::run_threads(ranks, [&](int rank) {
      auto group = place.group(0, rank, ranks);
      for (std::int64_t count : {7, 5000, 1'000'003}) {
        tensors x{
          (at::arange(count, at::kLong) * (rank + 3) % 1009).to(at::kFloat)
          / (rank + 7.0F)};
        auto exact = x[0].to(at::kDouble);
        group->allreduce(x)->wait();
        tensors sum{exact};
        group->allreduce(sum)->wait();
        test::check(at::allclose(x[0].to(at::kDouble), sum[0]), "the sum");
        std::vector<tensors> all(1);
        for (int r = 0; r < ranks; ++r)
          all[0].push_back(at::empty_like(x[0]));
        group->allgather(all, x)->wait();
        for (auto& other : all[0])
          test::check(at::equal(other, x[0]), "other bits");
      }
    });
    EXPECT_EQ(failures,
              std::vector<std::string>(static_cast<std::size_t>(ranks)));
  }
}

// Inside a host in order of rank; then along the ring, from the host after the
// one that gets the sum.
TEST(hierarchical_group_test, the_parts_of_a_sum_are_added_in_a_fixed_order) {
  constexpr int ranks = 5;
  const std::array<std::pair<int, int>, 3> hosts{{{0, 2}, {2, 4}, {4, 5}}};
  constexpr std::int64_t count = 200'003;
  tensors all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(
      (at::arange(count * ranks, at::kLong) * (rank + 3) % 1009).to(at::kFloat)
      / (rank + 7.0F));
  tensors sums;
  for (auto [first, end] : hosts) {
    sums.push_back(all[static_cast<std::size_t>(first)].clone());
    for (auto rank = first + 1; rank < end; ++rank)
      sums.back() += all[static_cast<std::size_t>(rank)];
  }
  test::hierarchical_meeting_place place{ranks, false, 3};
  auto failures = test::run_threads(ranks, [&](int rank) {
    auto group = place.group(0, rank, ranks);
    auto out = at::empty({count}, at::kFloat);
    auto in = all[static_cast<std::size_t>(rank)].clone();
    test::reduce_scatter_single(*group, out, in)->wait();
    auto host = static_cast<std::size_t>(rank / 2);
    auto sum = sums[(host + 1) % 3] + sums[(host + 2) % 3] + sums[host];
    test::check(at::equal(out, sum.narrow(0, rank * count, count)), "the bits");
    test::check(at::equal(in, all[static_cast<std::size_t>(rank)]),
                "the input");
  });
  EXPECT_EQ(failures, std::vector<std::string>(ranks));
}

/// Counts what it sends.
class counting_link final : public socket_link {
public:
  counting_link(int socket, std::size_t& sent)
    : socket_link(unique_fd{socket}), sent_(sent) {}

  std::optional<std::size_t> send(std::span<const std::byte> bytes) override {
    auto moved = socket_link::send(bytes);
    sent_ += moved.value_or(0);
    return moved;
  }

private:
  std::size_t& sent_;
};

/// Three hosts with two ranks each. A unit is the tensor of a rank; headers are
/// less than a tenth of it.
class hierarchical_traffic_test : public testing::Test {
protected:
  static constexpr std::size_t count = 3;
  static constexpr std::size_t elements = 300'000;
  static constexpr auto unit = elements * sizeof(float);
  static constexpr reduction sum{element_type::float32, reduction_op::sum};

  using units = std::vector<double>;
  using tensor = std::vector<std::byte>;

  static memory_collectives::call call(collective_kind kind, int root = -1) {
    return {{.kind = kind, .root = root}, 60s};
  }

  /// One for each rank, if *takes*.
  static std::vector<tensor> one_each(bool takes = true) {
    return std::vector<tensor>(takes ? 2 * count : 0, tensor(unit));
  }

  template <class Byte>
  static std::vector<Byte*> pointers(std::vector<tensor>& x) {
    std::vector<Byte*> result;
    for (auto& each : x)
      result.push_back(each.data());
    return result;
  }

  /// What each host sends to the next one while its ranks do *what*, which is
  /// called with the group, the rank and its tensor.
  template <class What>
  units traffic_of(What what) {
    std::vector<std::size_t> sent(count);
    connect(sent);
    auto failures = test::run_threads(2 * count, [&](int rank) {
      auto host = static_cast<std::size_t>(rank) / 2;
      segment_exchange exchange{
        *shared_segment::attach(segments_[host].descriptor()), rank % 2,
        hosts_[host].first_rank};
      std::unique_ptr<host_ring> ring;
      if (rank % 2 == 0)
        ring = std::make_unique<host_ring>(hosts_, host, std::move(next_[host]),
                                           std::move(previous_[host]),
                                           describe_note);
      hierarchical_collectives group{exchange, hosts_, host, std::move(ring)};
      tensor own(unit);
      what(group, rank, own.data());
      group.close();
    });
    EXPECT_EQ(failures, std::vector<std::string>(2 * count));
    units result;
    for (auto bytes : sent)
      result.push_back(std::round(static_cast<double>(bytes) / unit * 10) / 10);
    return result;
  }

private:
  /// Afresh: a group ends with its ring.
  void connect(std::vector<std::size_t>& sent) {
    segments_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      segments_.push_back(*shared_segment::create(2));
      int ends[2];
      constexpr auto type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
      test::check(::socketpair(AF_UNIX, type, 0, ends) == 0, "no sockets");
      next_[i] = std::make_unique<counting_link>(ends[0], sent[i]);
      previous_[(i + 1) % count] =
        std::make_unique<socket_link>(unique_fd{ends[1]});
    }
  }

  const std::vector<ring_host> hosts_{{"a", 0, 2}, {"b", 2, 2}, {"c", 4, 2}};
  std::vector<shared_segment> segments_;
  std::array<std::unique_ptr<byte_link>, count> next_;
  std::array<std::unique_ptr<byte_link>, count> previous_;
};

TEST_F(hierarchical_traffic_test, sums_travel_as_far_as_they_are_needed) {
  using kind = collective_kind;
  auto all_reduce = traffic_of([](auto& group, int, std::byte* own) {
    group.all_reduce(call(kind::all_reduce), own, elements, sum);
  });
  EXPECT_EQ(all_reduce, (units{1.3, 1.3, 1.3}));
  auto reduce = traffic_of([](auto& group, int, std::byte* own) {
    group.all_reduce(call(kind::reduce, 3), own, elements, sum);
  });
  EXPECT_EQ(reduce, (units{1, 0, 1}));
  auto reduce_scatter = traffic_of([](auto& group, int, std::byte* own) {
    auto all = one_each();
    group.reduce_scatter(call(kind::reduce_scatter),
                         pointers<const std::byte>(all), own, elements, sum);
  });
  EXPECT_EQ(reduce_scatter, (units{4, 4, 4}));
}

TEST_F(hierarchical_traffic_test, tensors_travel_as_far_as_they_are_needed) {
  using kind = collective_kind;
  auto broadcast = traffic_of([](auto& group, int, std::byte* own) {
    group.broadcast(call(kind::broadcast, 3), own, unit);
  });
  EXPECT_EQ(broadcast, (units{0, 1, 1}));
  auto all_gather = traffic_of([](auto& group, int, std::byte* own) {
    auto all = one_each();
    group.all_gather(call(kind::all_gather), own, unit,
                     pointers<std::byte>(all));
  });
  EXPECT_EQ(all_gather, (units{4, 4, 4}));
  auto gather = traffic_of([](auto& group, int rank, std::byte* own) {
    auto all = one_each(rank == 3);
    group.all_gather(call(kind::gather, 3), own, unit,
                     pointers<std::byte>(all));
  });
  EXPECT_EQ(gather, (units{4, 0, 2}));
  auto scatter = traffic_of([](auto& group, int rank, std::byte* own) {
    auto all = one_each(rank == 3);
    group.scatter(call(kind::scatter, 3), pointers<const std::byte>(all), own,
                  unit);
  });
  EXPECT_EQ(scatter, (units{0, 4, 2}));
  auto barrier = traffic_of(
    [](auto& group, int, std::byte*) { group.barrier(call(kind::barrier)); });
  EXPECT_EQ(barrier, (units{0, 0, 0}));
}

TEST(hierarchical_group_test, ranks_of_two_hosts_that_differ_learn_it) {
  test::hierarchical_meeting_place place{4, false};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4);
    auto reason = sum_of(*group, rank < 2 ? 100 : 200'000);
    expect_mention(reason, "of 100 elements");
    expect_mention(reason, "of 200000 elements");
    test::check(sum_of(*group, 1) == reason, "the group works again");
  });
  EXPECT_EQ(failures, nothing);
}

// On one host they do, too. Both are summed as float.
TEST(hierarchical_group_test, ranks_that_average_other_types_learn_it) {
  for (auto scatters : {false, true}) {
    test::hierarchical_meeting_place place{2, false};
    auto failures = test::run_threads(2, [&](int rank) {
      auto group = place.member(0, rank, 2);
      tensors x{at::ones({8}, rank == 0 ? at::kHalf : at::kFloat)};
      error reason;
      try {
        if (scatters) {
          std::vector<tensors> parts{{x[0].clone(), x[0].clone()}};
          c10d::ReduceScatterOptions mean;
          mean.reduceOp = c10d::ReduceOp::AVG;
          group->reduce_scatter(x, parts, mean)->wait();
        } else {
          c10d::AllreduceOptions mean;
          mean.reduceOp = c10d::ReduceOp::AVG;
          group->allreduce(x, mean)->wait();
        }
      } catch (const train_error& e) {
        reason = e.reason();
      }
      expect_mention(reason, "of 8 elements of Half");
      expect_mention(reason, "of 8 elements of Float");
    });
    EXPECT_EQ(failures, std::vector<std::string>(2));
  }
}

// A leader that enters long after the others still fails before them.
TEST(hierarchical_group_test, the_limit_of_others_begins_when_all_are_there) {
  auto segment = *shared_segment::create(1);
  segment_exchange exchange{*shared_segment::attach(segment.descriptor()), 0,
                            0};
  exchange.open({.kind = collective_kind::barrier}, 60s);
  auto all_are_there = std::chrono::steady_clock::now();
  exchange.grant(5s);
  EXPECT_GE(exchange.deadline(), all_are_there + 65s);
}

TEST(hierarchical_group_test, names_the_host_that_is_late) {
  test::hierarchical_meeting_place place{4, false};
  std::latch over{4};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4, rank < 2 ? 50ms : 60'000ms);
    error reason;
    if (rank < 2)
      reason = sum_of(*group, 100'000);
    over.arrive_and_wait();
    if (rank < 2)
      expect_mention(reason, "host b (ranks 2-3) did not arrive within 50 ms");
    if (rank == 0) {
      test::check(reason.code == ec::timeout, "another code");
      test::check(place.segment(0, 4, 0).activity(0).gave_up_collective(),
                  "not shown");
    }
  });
  EXPECT_EQ(failures, nothing);
}

TEST(hierarchical_group_test, an_abort_of_one_rank_ends_all_hosts) {
  test::hierarchical_meeting_place place{4, false};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4);
    if (rank == 3) {
      group->abort({ec::rank_failed, "rank 3: killed by signal 9"});
      return;
    }
    auto reason = sum_of(*group, 1'000'000);
    test::check(reason.code == ec::rank_failed, reason.message);
    if (rank == 2)
      expect_mention(reason, "rank 3: killed by signal 9");
    else
      expect_mention(reason, "host b (ranks 2-3) has left the group");
  });
  EXPECT_EQ(failures, nothing);
}

TEST(hierarchical_group_test, a_rank_that_leaves_ends_all_hosts) {
  test::hierarchical_meeting_place place{4, false};
  auto failures = test::run_threads(4, [&](int rank) {
    auto group = place.member(0, rank, 4);
    test::check(sum_of(*group, 1'000'000).code == ec::none, "it failed");
    if (rank == 1)
      return;
    auto reason = sum_of(*group, 1'000'000);
    test::check(reason.code == ec::rank_failed, reason.message);
    expect_mention(reason, rank == 0 ? "rank 1 has left the group"
                                     : "host a (ranks 0-1) has left");
  });
  EXPECT_EQ(failures, nothing);
}

} // namespace

} // namespace troupe::internal
