#include "troupe/trainers/torch/groups/make_group.hpp"

#include <barrier>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/memory_link.hpp"
#include "tests/support/no_new_threads.hpp"
#include "tests/support/torch_ranks.hpp"
#include "troupe/trainers/ring/join_ring.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

using test::check;
using tensors = std::vector<at::Tensor>;

/// The control plane of a world of threads.
class make_group_test : public testing::Test {
protected:
  void TearDown() override { EXPECT_TRUE(group_reaper::drain(20s)); }

  rank_facts facts(int rank, int size, bool with_segment = true) {
    rank_facts x;
    x.rank = x.local_rank = rank;
    x.world_size = x.local_world_size = size;
    x.in_process = true;
    x.segment = with_segment ? segment_.descriptor() : -1;
    return x;
  }

  /// Runs *body* with the context and the plane of every rank of two.
  std::vector<std::string>
  on_ranks(backend kind, bool with_segment,
           const std::function<void(train_context&, torch_data_plane&,
                                    test::memory_link&)>& body) {
    return test::run_threads(2, [&](int rank) {
      auto link = std::make_shared<test::memory_link>(store_);
      train_context context{facts(rank, 2, with_segment), link, std::nullopt};
      {
        auto plane = make_group(context, {.backend = kind, .timeout = 60s});
        check(link->has_abort(), "no listener for aborts");
        rank_access{context}.data_plane() = plane;
        body(context, *plane, *link);
        rank_access{context}.data_plane().reset();
        check(link->activity()->left_group.load() == 0, "it left too early");
      }
      check(link->activity()->left_group.load() == 1, "no one sees it leave");
      check(!link->has_abort(), "a listener for aborts is left");
    });
  }

  test::memory_store store_;
  shared_segment segment_ = shared_segment::create(2).value();
};

void expect_sum(torch_data_plane& plane, const std::string& name) {
  check(plane.device.is_cpu(), "the device is not a CPU");
  auto member = plane.group->getBackend(at::kCPU);
  check(member->getBackendName() == name, member->getBackendName());
  tensors x{at::full({1000}, plane.group->getRank() + 1.0)};
  plane.group->allreduce(x)->wait();
  check(x[0].eq(3).all().item<bool>(), "the sum is wrong");
  plane.group->barrier()->wait();
}

error refusal(test::memory_store& store, rank_facts facts,
              const torch_config& config) {
  auto link = std::make_shared<test::memory_link>(store);
  train_context context{std::move(facts), link, std::nullopt};
  try {
    make_group(context, config);
  } catch (const train_error& e) {
    return e.reason();
  }
  return {};
}

const std::vector<std::string> no_failures(2);

TEST_F(make_group_test, ranks_of_one_host_share_memory) {
  EXPECT_EQ(
    on_ranks(backend::automatic, true,
             [](auto&, auto& plane, auto&) { expect_sum(plane, "local"); }),
    no_failures);
}

TEST_F(make_group_test, a_hierarchical_group_serves_one_host) {
  EXPECT_EQ(on_ranks(backend::hierarchical, true,
                     [](auto&, auto& plane, auto&) {
                       expect_sum(plane, "hierarchical");
                     }),
            no_failures);
}

/// A rank that is alone on its host, with *credentials* to encrypt or none.
void join_alone(test::memory_store& store, rank_facts x,
                const std::optional<link_credentials>& credentials) {
  x.local_rank = 0;
  x.local_world_size = 1;
  x.host_address = "127.0.0.1";
  x.run_id = "run1";
  auto link = std::make_shared<test::memory_link>(store, credentials);
  train_context context{x, link, std::nullopt};
  auto plane =
    make_group(context, {.backend = backend::hierarchical,
                         .timeout = 60s,
                         .encrypt_gradients = credentials.has_value()});
  expect_sum(*plane, "hierarchical");
}

TEST_F(make_group_test, hosts_with_one_rank_each_need_no_segment) {
  auto failures = test::run_threads(
    2, [&](int rank) { join_alone(store_, facts(rank, 2, false), {}); });
  EXPECT_EQ(failures, no_failures);
}

TEST_F(make_group_test, leaders_with_the_credentials_of_their_run_encrypt) {
  auto credentials = make_link_credentials("run1");
  if (!credentials)
    GTEST_SKIP() << credentials.error().message;
  auto failures = test::run_threads(2, [&](int rank) {
    join_alone(store_, facts(rank, 2, false), *credentials);
  });
  EXPECT_EQ(failures, no_failures);
}

TEST_F(make_group_test, leaders_without_credentials_are_refused) {
  auto x = facts(0, 2, false);
  x.local_world_size = 1;
  x.host_address = "127.0.0.1";
  auto reason = refusal(store_, x, {.backend = backend::hierarchical});
  EXPECT_EQ(reason.code, ec::unsupported);
  EXPECT_NE(reason.message.find("rank 0: torch_config::encrypt_gradients"),
            std::string::npos)
    << reason.message;
}

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

TEST_F(make_group_test, an_abort_of_the_attempt_ends_waiting_collectives) {
  for (auto kind : {backend::local, backend::gloo}) {
    if (kind == backend::gloo && !has_gloo())
      continue;
    std::atomic<bool> done{false};
    auto failures =
      on_ranks(kind, true, [&](auto& context, auto& plane, auto& link) {
        if (context.rank() == 1) { // Hangs until rank 0 has left.
          done.wait(false);
          return;
        }
        tensors x{at::ones({100'000})};
        auto work = plane.group->allreduce(x);
        link.abort({ec::rank_failed, "rank 1 hangs"});
        std::string message;
        try {
          work->wait();
        } catch (const train_error& e) {
          message = e.what();
        }
        done.store(true);
        done.notify_all();
        check(message.find("rank 1 hangs") != std::string::npos, message);
        check(work->getFuture()->hasError(), "the future has no error");
      });
    EXPECT_EQ(failures, no_failures) << to_string(kind);
  }
}

TEST_F(make_group_test, sums_are_right_for_views_of_any_kind) {
  for (auto kind : {backend::local, backend::gloo}) {
    if (kind == backend::gloo && !has_gloo())
      continue;
    auto failures = on_ranks(kind, true, [](auto& context, auto&, auto&) {
      auto rank = context.rank();
      auto numbers = [&] {
        return at::arange(24, at::kFloat).view({4, 6}) * (rank + 1);
      };
      auto sums = at::arange(24, at::kFloat).view({4, 6}) * 3;
      auto expect = [&](const at::Tensor& x, const at::Tensor& sum,
                        const char* what) {
        auto found = all_reduce(context, x);
        check(found.is_same(x), std::string{what} + " is another tensor");
        check(at::equal(x, sum), std::string{"the sum is wrong: "} + what);
      };
      expect(numbers().t(), sums.t(), "transposed");
      auto one = numbers();
      expect(rank == 0 ? one.t() : one.t().contiguous(), sums.t(),
             "laid out in another way on each rank");
      auto whole = numbers();
      auto rest = whole.slice(1, 1, 6, 2).clone();
      expect(whole.slice(1, 0, 6, 2), sums.slice(1, 0, 6, 2), "every other");
      check(at::equal(whole.slice(1, 1, 6, 2), rest),
            "what the view leaves out was changed");
      expect(at::_neg_view(numbers()), -sums, "negated");
      auto waves = at::complex(numbers(), numbers() + 1);
      expect(waves.conj(), at::complex(sums, -sums - 2), "conjugated");
      check(at::equal(waves, at::complex(sums, sums + 2)),
            "the tensor of the view has another sum");
      expect(waves.conj().slice(1, 0, 6, 3),
             at::complex(sums * 2, -sums * 2 - 4).slice(1, 0, 6, 3),
             "some of the conjugated");
      std::string refusal;
      try {
        all_reduce(context, at::ones({1}).expand({3}));
      } catch (const std::exception& e) {
        refusal = e.what();
      }
      check(refusal.find("single memory location") != refusal.npos, refusal);
    });
    EXPECT_EQ(failures, no_failures) << to_string(kind);
  }
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

TEST_F(make_group_test, a_world_of_one_needs_no_group) {
  auto link = std::make_shared<test::memory_link>(store_);
  train_context context{facts(0, 1), link, std::nullopt};
  auto plane = make_group(context, {});
  EXPECT_EQ(plane->group, nullptr);
  EXPECT_TRUE(plane->device.is_cpu());
}

TEST_F(make_group_test, a_group_may_wait_forever) {
  for (auto kind : {backend::local, backend::gloo}) {
    if (kind == backend::gloo && !has_gloo())
      continue;
    auto failures = test::run_threads(2, [&](int rank) {
      train_context context{facts(rank, 2),
                            std::make_shared<test::memory_link>(store_),
                            std::nullopt};
      auto plane =
        make_group(context, {kind, std::chrono::milliseconds::max()});
      tensors x{at::full({1000}, rank + 1.0)};
      plane->group->allreduce(x)->wait();
      check(x[0].eq(3).all().item<bool>(), "the sum is wrong");
    });
    EXPECT_EQ(failures, no_failures) << to_string(kind);
  }
}

TEST_F(make_group_test, a_plane_may_be_kept_for_longer_than_its_context) {
  auto failures = test::run_threads(2, [&](int rank) {
    std::shared_ptr<torch_data_plane> plane;
    std::weak_ptr<test::memory_link> watched;
    {
      auto link = std::make_shared<test::memory_link>(store_);
      watched = link;
      train_context context{facts(rank, 2), std::move(link), std::nullopt};
      plane = make_group(context, {.backend = backend::local, .timeout = 60s});
    }
    check(watched.expired(), "the plane keeps the link");
    plane.reset();
  });
  EXPECT_EQ(failures, no_failures);
}

TEST_F(make_group_test, a_hierarchical_group_of_hosts_needs_their_addresses) {
  auto x = facts(0, 2, false);
  x.local_world_size = 1;
  auto reason = refusal(store_, x, {.backend = backend::hierarchical});
  EXPECT_EQ(reason.code, ec::unsupported) << reason.message;
  x.host_address = "h1";
  reason = refusal(
    store_, x, {.backend = backend::hierarchical, .encrypt_gradients = false});
  EXPECT_EQ(reason.code, ec::invalid_config) << reason.message;
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
}

TEST_F(make_group_test, nccl_without_a_gpu_is_refused) {
  auto reason = refusal(store_, facts(1, 2), {.backend = backend::nccl});
  EXPECT_EQ(reason.code, ec::unsupported);
  EXPECT_NE(reason.message.find("rank 1: backend nccl needs a GPU"),
            std::string::npos)
    << reason.message;
}

TEST_F(make_group_test, local_without_a_segment_is_refused) {
  auto reason =
    refusal(store_, facts(0, 2, false), {.backend = backend::local});
  EXPECT_EQ(reason.code, ec::unsupported);
}

TEST_F(make_group_test, a_number_that_is_not_a_backend_is_refused) {
  auto reason =
    refusal(store_, facts(1, 2), {.backend = static_cast<backend>(9)});
  EXPECT_EQ(reason.code, ec::invalid_argument);
  EXPECT_NE(reason.message.find("torch_config::backend is 9"),
            std::string::npos)
    << reason.message;
}

TEST_F(make_group_test, a_timeout_that_is_not_positive_is_refused) {
  for (auto timeout : {0ms, -5ms}) {
    auto reason = refusal(store_, facts(1, 2), {.timeout = timeout});
    EXPECT_EQ(reason.code, ec::invalid_argument);
    EXPECT_NE(reason.message.find("rank 1: torch_config::timeout is "),
              std::string::npos)
      << reason.message;
  }
}

TEST_F(make_group_test, a_segment_for_another_world_is_refused) {
  auto reason = refusal(store_, facts(0, 3), {.backend = backend::local});
  EXPECT_EQ(reason.code, ec::protocol);
}

TEST_F(make_group_test, gloo_names_the_ranks_that_do_not_come) {
  if (!has_gloo())
    GTEST_SKIP() << "this build has no Gloo";
  auto reason = refusal(store_, facts(1, 3, false),
                        {.backend = backend::gloo, .timeout = 30ms});
  EXPECT_EQ(reason.code, ec::timeout);
  EXPECT_NE(reason.message.find("rank 0, 2 did not join"), std::string::npos)
    << reason.message;
}

} // namespace

} // namespace troupe::internal
