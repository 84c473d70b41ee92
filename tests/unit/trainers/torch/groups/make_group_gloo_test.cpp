// Groups over Gloo: whom they wait for, and how they fail and end.

#include <atomic>
#include <barrier>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tests/support/no_new_threads.hpp"
#include "tests/unit/trainers/torch/groups/make_group_fixture.hpp"
#include "troupe/runtime/hosts/network_addresses.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;

using tensors = std::vector<at::Tensor>;

TEST_F(make_group_test, ranks_without_a_segment_talk_through_gloo) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  EXPECT_EQ(
    on_ranks(backend::automatic, false,
             [](auto&, auto& plane, auto&) { expect_sum(plane, "gloo"); }),
    no_failures);
}

TEST_F(make_group_test, gloo_carries_every_collective) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  EXPECT_EQ(
    on_ranks(backend::gloo, true,
             [](auto& context, auto& plane, auto&) {
               auto& group = *plane.group;
               auto rank = context.rank();
               tensors x{at::full({3}, rank + 0.0)};
               group.broadcast(x)->wait();
               check(x[0].eq(0).all().template item<bool>(), "broadcast");
               std::vector<tensors> lists{{at::empty({3}), at::empty({3})}};
               x = {at::full({3}, rank + 5.0)};
               auto work = group.allgather(lists, x);
               auto future = work->getFuture();
               future->wait();
               check(!future->hasError()
                       && lists[0][1].eq(6).all().template item<bool>(),
                     "all-gather");
               auto out = at::empty({2});
               auto in = at::ones({4});
               test::reduce_scatter_single(group, out, in)->wait();
               check(out.eq(2).all().template item<bool>(), "reduce-scatter");
               auto sparse = at::sparse_coo_tensor(
                 at::full({1, 1}, rank, at::kLong), at::ones({1, 2}), {4, 2});
               x = {sparse};
               group.allreduce(x)->wait();
               check(x[0].sum().template item<float>() == 4, "sparse sum");
             }),
    no_failures);
}

TEST_F(make_group_test, a_timeout_over_gloo_is_one_that_blames_late_ranks) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  std::atomic<bool> over{false};
  auto failures =
    on_ranks(backend::gloo, true, [&](auto& context, auto& plane, auto& link) {
      if (context.rank() == 1) {
        over.wait(false);
        return;
      }
      tensors x{at::ones({8})};
      c10d::AllreduceOptions options;
      options.timeout = 30ms;
      error reason;
      try {
        plane.group->allreduce(x, options)->wait();
      } catch (const train_error& e) {
        reason = e.reason();
      }
      over.store(true);
      over.notify_all();
      check(reason.code == ec::timeout, reason.message);
      check(reason.message.starts_with("rank 0: a collective waited too long"),
            reason.message);
      check(link.activity()->gave_up_collective(), "it did not give up");
    });
  EXPECT_EQ(failures, no_failures);
}

std::set<int> threads_here() {
  std::set<int> result;
  for (auto& x : std::filesystem::directory_iterator{"/proc/self/task"})
    result.insert(std::stoi(x.path().filename()));
  return result;
}

/// From the mask in `/proc`; nothing of a thread that is gone.
std::optional<bool> blocks(int thread, int signal) {
  std::ifstream in{"/proc/self/task/" + std::to_string(thread) + "/status"};
  for (std::string word; in >> word;)
    if (word == "SigBlk:" && in >> word)
      return (std::stoull(word, nullptr, 16) >> (signal - 1) & 1) != 0;
  return std::nullopt;
}

TEST_F(make_group_test, a_peer_that_has_ended_causes_no_signal_over_gloo) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  auto before = threads_here();
  std::barrier both{2};
  std::atomic<int> ranks[2];
  std::atomic<int> blocking{0};
  std::atomic<int> open{0};
  auto failures =
    on_ranks(backend::gloo, true, [&](auto& context, auto&, auto&) {
      ranks[context.rank()] = ::gettid();
      both.arrive_and_wait(); // All have their threads.
      for (auto thread : threads_here())
        if (!before.contains(thread) && thread != ranks[0]
            && thread != ranks[1])
          if (auto blocked = blocks(thread, SIGPIPE))
            ++(*blocked ? blocking : open);
      both.arrive_and_wait();
    });
  EXPECT_EQ(failures, no_failures);
  EXPECT_GT(blocking, 0);
  EXPECT_EQ(open, 0);
}

// The end of a loop, and the control plane, come at any time.
TEST_F(make_group_test, a_group_over_gloo_ends_where_no_thread_is_left) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  for (bool aborted : {false, true}) {
    std::barrier both{2};
    std::optional<test::no_new_threads> none;
    auto failures = test::run_threads(2, [&](int rank) {
      auto link = std::make_shared<test::memory_link>(store_);
      auto here = facts(rank, 2);
      here.attempt = aborted ? 2 : 1; // Addresses of the first stay.
      train_context context{std::move(here), link, std::nullopt};
      auto plane =
        make_group(context, {.backend = backend::gloo, .timeout = 60s});
      expect_sum(*plane, "gloo");
      both.arrive_and_wait();
      if (rank == 0)
        none.emplace();
      both.arrive_and_wait();
      if (aborted)
        link->abort({ec::rank_failed, "rank 2: it crashed"});
      plane.reset();
      both.arrive_and_wait();
      if (rank == 0)
        none.reset();
    });
    EXPECT_EQ(failures, no_failures);
    EXPECT_EQ(group_reaper::pending(), 0) << "those that stay do not count";
  }
}

// It runs on the thread of the abort.
TEST_F(make_group_test,
       a_callback_over_gloo_may_release_the_group_at_an_abort) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  std::barrier both{2};
  auto failures = test::run_threads(2, [&](int rank) {
    auto link = std::make_shared<test::memory_link>(store_);
    train_context context{facts(rank, 2), link, std::nullopt};
    auto plane =
      make_group(context, {.backend = backend::gloo, .timeout = 60s});
    if (rank == 0) {
      tensors x{at::ones({8})};
      auto work = plane->group->allreduce(x); // Rank 1 does not call it.
      work->getFuture()->addCallback(
        [&plane](c10::ivalue::Future&) { plane.reset(); });
      link->abort({ec::rank_failed, "rank 1: it crashed"});
    }
    auto has_left = link->activity()->left_group.load() == 1;
    auto has_abort = link->has_abort();
    both.arrive_and_wait();
    check(has_left == (rank == 0), "who has left");
    check(has_abort == (rank == 1), "who listens for aborts");
  });
  EXPECT_EQ(failures, no_failures);
}

// Gloo's own reduce-scatter has no future.
TEST_F(make_group_test, a_collective_that_no_thread_can_wait_for_fails) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  std::barrier both{2};
  std::optional<test::no_new_threads> none;
  auto failures =
    on_ranks(backend::gloo, true, [&](auto& context, auto& plane, auto& link) {
      auto part = at::empty({2});
      auto whole = at::ones({4});
      both.arrive_and_wait();
      if (context.rank() == 0)
        none.emplace();
      both.arrive_and_wait();
      error reason;
      try {
        test::reduce_scatter_single(*plane.group, part, whole)->wait();
      } catch (const train_error& e) {
        reason = e.reason();
      }
      both.arrive_and_wait();
      if (context.rank() == 0)
        none.reset();
      both.arrive_and_wait();
      check(reason.code == ec::spawn, reason.message);
      check(reason.message.starts_with("rank " + std::to_string(context.rank())
                                       + ": cannot wait for a collective"),
            reason.message);
      check(link.activity()->in_collective == 0, "it still waits");
    });
  EXPECT_EQ(failures, no_failures);
}

TEST_F(make_group_test, gloo_between_hosts_needs_an_address_of_this_one) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  auto x = facts(0, 2, false);
  x.local_world_size = 1;
  auto reason = refusal(store_, x, {.backend = backend::gloo});
  EXPECT_EQ(reason.code, ec::unsupported) << reason.message;
  EXPECT_TRUE(store_.add("attempt/0/gloo/here", 1)); // rank 1 has come
  x.host_address = "192.0.2.7";                      // that of no host
  reason = refusal(store_, x, {.backend = backend::gloo, .timeout = 60s});
  EXPECT_EQ(reason.code, ec::invalid_config) << reason.message;
  EXPECT_NE(
    reason.message.find("rank 0: this host has no network interface or address "
                        "192.0.2.7; it has "),
    std::string::npos)
    << reason.message;
  EXPECT_TRUE(reason.message.ends_with(other_network_hint)) << reason.message;
}

TEST_F(make_group_test, gloo_names_the_ranks_that_do_not_come) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  auto reason = refusal(store_, facts(1, 3, false),
                        {.backend = backend::gloo, .timeout = 30ms});
  EXPECT_EQ(reason.code, ec::timeout);
  EXPECT_NE(reason.message.find("ranks 0, 2 did not join"), std::string::npos)
    << reason.message;
}

} // namespace

} // namespace troupe::internal::test
