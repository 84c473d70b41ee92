#include <csignal>
#include <latch>
#include <memory>

#include <gtest/gtest.h>

#include "tests/support/torch_ranks.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

using tensors = std::vector<at::Tensor>;

c10::intrusive_ptr<c10d::Backend>
join(const shared_segment& segment, int rank,
     std::chrono::milliseconds timeout = 60s) {
  return c10::make_intrusive<local_group>(
    shared_segment::attach(segment.descriptor()).value(), rank, timeout);
}

/// How *f* failed; `ec::none` if it did not.
template <class F>
error failure_of(F f) {
  try {
    f();
  } catch (const train_error& e) {
    return e.reason();
  }
  return {};
}

error reduce(c10d::Backend& group, std::int64_t count) {
  return failure_of([&] {
    tensors x{at::ones({count})};
    group.allreduce(x)->wait();
  });
}

bool mentions(const error& reason, const std::string& what) {
  return reason.message.find(what) != std::string::npos;
}

/// Until the other ranks sleep because *rank* is not there.
void await_sleepers(const shared_segment& segment, int rank) {
  while (segment.rank(rank).sleepers.load() == 0)
    std::this_thread::yield();
}

TEST(group_failure_test, a_timeout_names_all_ranks_that_are_missing) {
  auto segment = shared_segment::create(4).value();
  auto group = join(segment, 1, 30ms);
  auto present = join(segment, 2);
  tensors x{at::ones({8})};
  auto other = present->allreduce(x);
  while (!segment.rank(2).reached(1))
    std::this_thread::yield();
  auto reason = reduce(*group, 8);
  EXPECT_EQ(reason.code, ec::timeout);
  EXPECT_TRUE(mentions(reason, "rank 1: all-reduce 1 of 8 elements of Float"))
    << reason.message;
  EXPECT_TRUE(mentions(reason, "ranks 0, 3 did not arrive within 30 ms"))
    << reason.message;
  EXPECT_TRUE(segment.activity(1).gave_up_collective());
  EXPECT_FALSE(segment.activity(2).gave_up_collective());
  // The group is of no use any more, for the others neither.
  EXPECT_EQ(reduce(*group, 8), reason);
  segment.abort();
  EXPECT_THROW(other->wait(), train_error);
}

TEST(group_failure_test, ranks_that_call_different_collectives_all_learn_it) {
  for (auto counts : {std::pair{100, 200}, std::pair{100'000, 200'000},
                      std::pair{10, 100'000}}) {
    auto segment = shared_segment::create(2).value();
    auto failures = test::run_threads(2, [&](int rank) {
      auto group = join(segment, rank);
      auto reason = reduce(*group, rank == 0 ? counts.first : counts.second);
      for (auto& part : {"rank " + std::to_string(1 - rank),
                         std::to_string(counts.first) + " elements",
                         std::to_string(counts.second) + " elements"})
        test::check(reason.code == ec::invalid_argument
                      && mentions(reason, part),
                    "'" + reason.message + "' lacks " + part);
    });
    EXPECT_EQ(failures, std::vector<std::string>(2));
  }
}

TEST(group_failure_test, an_abort_from_outside_ends_waiting_ranks) {
  auto segment = shared_segment::create(3).value();
  auto failures = test::run_threads(3, [&](int rank) {
    if (rank == 2) { // The control plane.
      await_sleepers(segment, 2);
      segment.abort({ec::rank_failed, "rank 2: killed by signal 9"});
      return;
    }
    auto group = join(segment, rank);
    auto reason = reduce(*group, 1'000'000);
    test::check(reason.code == ec::rank_failed
                  && mentions(reason, "rank 2: killed by signal 9"),
                reason.message);
    test::check(reduce(*group, 1) == reason, "the group works again");
  });
  EXPECT_EQ(failures, std::vector<std::string>(3));
}

TEST(group_failure_test, an_abort_fails_futures_with_the_same_error) {
  auto segment = shared_segment::create(2).value();
  auto group = join(segment, 0);
  tensors x{at::ones({4})};
  auto future = group->allreduce(x)->getFuture();
  await_sleepers(segment, 1);
  segment.abort({ec::stopped, "the run is to stop"});
  future->wait();
  ASSERT_TRUE(future->hasError());
  auto reason =
    failure_of([&] { std::rethrow_exception(future->exception_ptr()); });
  EXPECT_EQ(reason.code, ec::stopped);
  EXPECT_TRUE(mentions(reason, "the run is to stop")) << reason.message;
}

TEST(group_failure_test, survivors_of_a_killed_process_leave_on_the_abort) {
  auto segment = shared_segment::create(2).value();
  std::fflush(nullptr);
  auto victim = ::fork();
  if (victim == 0) {
    auto group = join(segment, 1);
    reduce(*group, 1'000'000);
    reduce(*group, 1'000'000); // Rank 0 does not come to this one.
    ::_exit(0);
  }
  auto survivor = ::fork();
  if (survivor == 0) {
    auto group = join(segment, 0);
    reduce(*group, 1'000'000);
    await_sleepers(segment, 0);
    ::kill(victim, SIGKILL);
    tensors x{at::ones({1'000'000})};
    auto work = group->allreduce(x);
    auto reason = failure_of([&] { work->wait(); });
    ::_exit(reason.code == ec::rank_failed && mentions(reason, "rank 1 died")
              ? 7
              : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(victim, &status, 0), victim);
  EXPECT_TRUE(WIFSIGNALED(status));
  segment.abort({ec::rank_failed, "rank 1 died"});
  ASSERT_EQ(::waitpid(survivor, &status, 0), survivor);
  EXPECT_EQ(status, 7 << 8);
}

TEST(group_failure_test, closing_ends_what_is_open_and_notifies_the_others) {
  auto segment = shared_segment::create(2).value();
  auto group = join(segment, 0);
  tensors x{at::ones({4})};
  auto work = group->allreduce(x);
  await_sleepers(segment, 1);
  group->shutdown();
  EXPECT_EQ(failure_of([&] { work->wait(); }).code, ec::stopped);
  EXPECT_EQ(reduce(*group, 4).code, ec::stopped);
  group.reset();
  auto other = join(segment, 1);
  EXPECT_EQ(reduce(*other, 4).code, ec::none) << "rank 0 had come to this one";
  auto reason = reduce(*other, 4);
  EXPECT_EQ(reason.code, ec::rank_failed);
  EXPECT_TRUE(mentions(reason, "rank 0 has left the group")) << reason.message;
}

// A callback runs on the group's thread, which then cannot wait for its own
// end.
TEST(group_failure_test, a_callback_may_release_the_last_reference) {
  auto segment = shared_segment::create(2).value();
  std::latch attached{1}; // rank 0's callback, before rank 1 comes
  auto failures = test::run_threads(2, [&](int rank) {
    auto group = join(segment, rank);
    tensors x{at::ones({4})};
    tensors y{at::ones({4})};
    if (rank == 1)
      attached.wait();
    auto work = group->allreduce(x);
    auto next = rank == 0 ? group->allreduce(y) : nullptr;
    auto last = std::make_shared<c10::intrusive_ptr<c10d::Backend>>();
    last->swap(group);
    auto gone = work->getFuture()->then(
      [last](c10::ivalue::Future&) {
        last->reset();
        return c10::IValue{};
      },
      c10::NoneType::get());
    if (rank == 0)
      attached.count_down();
    gone->wait();
    if (next) // was open when the group went
      test::check(failure_of([&] { next->wait(); }).code != ec::none,
                  "it was not failed");
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

TEST(group_failure_test, a_callback_may_wait_for_its_own_collective) {
  auto segment = shared_segment::create(2).value();
  auto group = join(segment, 0);
  tensors x{at::ones({4})};
  auto work = group->allreduce(x);
  auto waited = work->getFuture()->then(
    [&](c10::ivalue::Future&) { return c10::IValue{work->wait()}; },
    c10::BoolType::get());
  auto other = join(segment, 1);
  EXPECT_EQ(reduce(*other, 4).code, ec::none);
  waited->waitAndThrow();
  work = group->allreduce(x);
  auto failed = work->getFuture()->then(
    [&](c10::ivalue::Future&) { return c10::IValue{work->wait()}; },
    c10::BoolType::get());
  segment.abort({ec::stopped, "the run is to stop"});
  EXPECT_EQ(failure_of([&] { failed->waitAndThrow(); }).code, ec::stopped);
}

TEST(group_failure_test, a_forked_process_does_not_wait_for_the_loop) {
  auto segment = shared_segment::create(2).value();
  auto group = join(segment, 0);
  tensors x{at::ones({4})};
  auto work = group->allreduce(x);
  await_sleepers(segment, 1);
  std::fflush(nullptr);
  auto child = ::fork();
  if (child == 0) {
    auto reason = failure_of([&] { work->wait(); });
    ::_exit(reason.code == ec::invalid_argument ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 7 << 8);
  auto other = join(segment, 1);
  EXPECT_EQ(reduce(*other, 4).code, ec::none);
  EXPECT_TRUE(work->wait());
  child = ::fork();
  if (child == 0)
    ::_exit(work->wait() ? 7 : 1);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 7 << 8);
}

// As a comm_hook with two collectives may be written at first.
TEST(group_failure_test, a_callback_must_not_wait_for_its_own_thread) {
  auto segment = shared_segment::create(2).value();
  std::latch attached{1}; // rank 0's callback, before rank 1 comes
  auto failures = test::run_threads(2, [&](int rank) {
    auto group = join(segment, rank);
    if (rank == 0) {
      tensors x{at::ones({4})};
      auto second = group->allreduce(x)->getFuture()->then(
        [&](c10::ivalue::Future&) {
          group->allreduce(x)->wait();
          return c10::IValue{};
        },
        c10::NoneType::get());
      attached.count_down();
      auto reason = failure_of([&] { second->waitAndThrow(); });
      test::check(reason.code == ec::invalid_argument
                    && mentions(reason, "runs on the same thread"),
                  reason.message);
    } else {
      attached.wait();
      for (int i = 0; i < 2; ++i) // The second one was called all the same.
        test::check(reduce(*group, 4).code == ec::none, "the group failed");
    }
    test::check(reduce(*group, 8).code == ec::none, "the group failed later");
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

TEST(group_failure_test, a_collective_may_wait_forever) {
  auto segment = shared_segment::create(2).value();
  auto failures = test::run_threads(2, [&](int rank) {
    auto group = join(segment, rank, std::chrono::milliseconds::max());
    auto reason = reduce(*group, 100'000);
    test::check(reason.code == ec::none, reason.message);
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

TEST(group_failure_test, refuses_what_it_cannot_do_before_anyone_waits) {
  auto segment = shared_segment::create(2).value();
  auto group = join(segment, 0);
  using op = c10d::ReduceOp;
  auto fails = [&](tensors x, const c10d::ReduceOp& op) {
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    return failure_of([&] { group->allreduce(x, options); }).code;
  };
  op scaled;
  scaled.op_ = op::PREMUL_SUM;
  EXPECT_EQ(fails({at::ones({2})}, scaled), ec::unsupported);
  EXPECT_EQ(fails({at::ones({2})}, op::BXOR), ec::invalid_argument);
  EXPECT_EQ(fails({at::ones({2}, at::kBool)}, op::AVG), ec::invalid_argument);
  EXPECT_EQ(fails({at::ones({2}), at::ones({2})}, op::SUM),
            ec::invalid_argument);
  tensors x{at::ones({2})};
  c10d::BroadcastOptions from;
  from.rootRank = 2;
  EXPECT_EQ(failure_of([&] { group->broadcast(x, from); }).code,
            ec::invalid_argument);
  std::vector<tensors> lists{{at::ones({2})}};
  EXPECT_EQ(failure_of([&] { group->allgather(lists, x); }).code,
            ec::invalid_argument);
}

} // namespace

} // namespace troupe::internal
