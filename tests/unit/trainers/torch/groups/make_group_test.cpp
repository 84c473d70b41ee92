// The group that each backend makes of a run's ranks, and what is refused.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/trainers/torch/groups/make_group_fixture.hpp"
#include "troupe/trainers/ring/join_ring.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/groups/rendezvous_store.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;

using tensors = std::vector<at::Tensor>;

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

// The other leader has come, but answers no connection.
TEST_F(make_group_test, an_abort_ends_the_wait_for_another_host_as_its_reason) {
  auto x = facts(0, 2, false);
  x.local_world_size = 1;
  x.host_address = "127.0.0.1";
  auto store = c10::make_intrusive<c10d::PrefixStore>(
    "attempt/0/hierarchical",
    c10::make_intrusive<rendezvous_store>(store_, 60s));
  auto other = host_meeting::begin(*store, {1, 0, 1, 2, "h1", "127.0.0.1"}, {});
  ASSERT_TRUE(other) << other.error().message;
  store->set("here/1", rendezvous_store::bytes{1});
  store->add("here", 1);
  auto link = std::make_shared<test::memory_link>(store_);
  std::thread control{[&link] {
    while (!link->has_abort())
      std::this_thread::yield();
    link->abort({ec::rank_failed, "rank 1 hangs"});
  }};
  train_context context{x, link, std::nullopt};
  error reason;
  try {
    make_group(context, {.backend = backend::hierarchical,
                         .timeout = 60s,
                         .encrypt_gradients = false});
  } catch (const train_error& e) {
    reason = e.reason();
  }
  control.join();
  EXPECT_EQ(reason.code, ec::rank_failed);
  EXPECT_EQ(reason.message, "rank 1 hangs");
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
  const torch_config config{.backend = backend::hierarchical,
                            .encrypt_gradients = false};
  auto reason = refusal(store_, x, config);
  EXPECT_EQ(reason.code, ec::unsupported) << reason.message;
  x.host_address = "h1";
  reason = refusal(store_, x, config);
  EXPECT_EQ(reason.code, ec::invalid_config) << reason.message;
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

} // namespace

} // namespace troupe::internal::test
