// Ranks that never come to an all-reduce, or sit in their dataset, while the
// others wait in the group: who is named, with what, and who is ended.

#include <cerrno>
#include <stdexcept>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <troupe/actors.hpp>

#include "tests/support/own_system.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/rank_link.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

namespace {

/// Where rank 1 is while rank 0 waits for it in an all-reduce.
struct absence {
  bool in_dataset = false; ///< Else in its train loop.
  std::string until;       ///< The file that lets it continue; empty: never.
  std::string away;        ///< The file that says that it is there.

  template <class Archive>
  void serialize(Archive& ar) {
    ar(in_dataset, until, away);
  }
};

/// At work until the file exists; else inactive. A function that the program
/// does not export.
[[gnu::noinline]] void stays_away(const std::string& until) {
  while (!until.empty() && !fs::exists(until))
    std::this_thread::yield();
  while (until.empty())
    ::pause();
}

struct slow_samples {
  absence given;
  int rank;

  std::int64_t size() const { return 4; }
  at::Tensor get(std::size_t) const {
    if (given.in_dataset && rank == 1) {
      write_bytes(given.away, "x");
      stays_away(given.until);
    }
    return at::ones({1});
  }
};

void loop(train_context& context, const absence& x) {
  auto loader = prepare_data_loader(context, slow_samples{x, context.rank()},
                                    {.batch_size = 2});
  for (auto& batch : loader) {
    if (!x.in_dataset && context.rank() == 1) {
      write_bytes(x.away, "x");
      stays_away(x.until);
    }
    while (!fs::exists(x.away))
      std::this_thread::yield();
    auto sum = all_reduce(context, batch.sum());
    context.report({{"sum", sum.item<double>()}});
  }
}

/// Rank 0 waits in an all-reduce that rank 1 never comes to: it reports.
void reduce_beside_a_report(train_context& context, const std::string&) {
  if (context.rank() == 0)
    all_reduce(context, at::ones({1}));
  context.report({{"step", 0}});
}

/// Rank 0 has an all-reduce under way that rank 1 comes to after its report,
/// and works meanwhile until the file is there.
void report_beside_a_reduction(train_context& context,
                               const std::string& until) {
  std::vector<at::Tensor> x{at::ones({1})};
  auto sum = [&] { return data_plane(context)->group->allreduce(x); };
  auto early = context.rank() == 0 ? sum() : nullptr;
  if (early)
    stays_away(until);
  context.report({{"step", 0}});
  (early ? early : sum())->wait();
  context.report({{"sum", x[0].item<double>()}});
}

/// Rank 1 breaks with an all-reduce under way that rank 0 has not joined, and
/// rank 0 needs it only once its group is closing.
void break_beside_a_reduction(train_context& context,
                              const std::string& closing) {
  std::vector<at::Tensor> x{at::ones({1})};
  auto& group = *data_plane(context)->group;
  if (context.rank() == 1) {
    group.allreduce(x)->getFuture()->addCallback(
      [closing](c10::ivalue::Future&) { write_bytes(closing, "x"); });
    throw std::runtime_error{"bad input"};
  }
  stays_away(closing);
  // Rank 1 may have come to the first one.
  group.allreduce(x)->wait();
  group.allreduce(x)->wait();
}

struct ones {
  std::int64_t size() const { return 64; }
  at::Tensor get(std::size_t) const { return at::ones({1}); }
};

/// Rank 0 forks a process that leaves the loop, with its group and the threads
/// of its loader, by *action*.
void leave_in_child(train_context& context, const std::string& action) {
  auto loader = prepare_data_loader(context, ones{}, {.workers = 2});
  int status = -1;
  for (auto& batch : loader) {
    all_reduce(context, batch);
    if (context.rank() != 0 || status >= 0)
      continue;
    auto child = ::fork();
    if (child == 0) {
      ::alarm(60); // SIGALRM, should it wait for what it does not have
      if (action == "throw")
        throw std::runtime_error{"not of the rank"};
      if (action == "reduce")
        all_reduce(context, at::ones({1}));
      if (action == "read")
        continue;
      return;
    }
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
      continue;
  }
  context.report(
    {{"code", WIFEXITED(status) ? WEXITSTATUS(status) : -1},
     {"left",
      static_cast<int>(rank_access{context}.link().activity()->left_group)}});
}

using parameters = std::tuple<backend, bool>;

class torch_hangs_test : public testing::TestWithParam<parameters> {
protected:
  void SetUp() override {
    if (std::get<0>(GetParam()) == backend::gloo && !has_gloo())
      GTEST_SKIP() << "this build has no Gloo";
  }

  torch_trainer trainer(std::string until) const {
    auto [kind, in_dataset] = GetParam();
    torch_options x;
    x.scaling.num_workers = 2;
    x.run.name = "run";
    x.run.storage_path = storage_.path();
    x.run.quiet = true;
    x.run.hang_timeout = std::chrono::milliseconds{600};
    x.torch.backend = kind;
    return torch_trainer{
      loop, absence{in_dataset, std::move(until), (storage_ / "away").string()},
      x};
  }

  /// What is said of rank 1.
  static std::string place() {
    return std::get<1>(GetParam()) ? "rank 1 is in its data loader"
                                   : "rank 1 is in its train loop";
  }

  void expect_stacks() const {
    auto logs = storage_ / "run" / "logs";
    auto stacks = bytes_of(logs / "rank_1.stacks");
    EXPECT_NE(stacks.find("stays_away"), std::string::npos) << stacks;
    EXPECT_FALSE(fs::exists(logs / "rank_0.stacks"));
    auto journal = bytes_of(storage_ / "run" / "journal.jsonl");
    EXPECT_NE(journal.find(place()), std::string::npos) << journal;
    EXPECT_NE(journal.find("logs/rank_1.stacks"), std::string::npos) << journal;
  }

  temporary_folder storage_;
};

constexpr auto missing = "collective 1: rank 1 is missing";

} // namespace

TEST_P(torch_hangs_test, a_rank_at_work_that_others_wait_for_is_named) {
  own_system system;
  auto until = storage_ / "until";
  auto handle = trainer(until.string()).start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  auto waits = [&] { return handle->status().waits; };
  while (waits().find(missing) == std::string::npos
         && !is_terminal(handle->status().state))
    std::this_thread::yield();
  auto said = waits();
  EXPECT_NE(said.find(place()), std::string::npos) << said;
  write_bytes(until, "x");
  auto outcome = handle->wait();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 1u);
  EXPECT_EQ(outcome.metrics.at("sum"), metric_value{4.0});
  expect_stacks();
}

TEST_P(torch_hangs_test, a_rank_without_a_sign_of_life_is_named_and_ended) {
  auto outcome = trainer({}).fit();
  ASSERT_TRUE(outcome.error);
  ASSERT_EQ(outcome.error->ranks.size(), 1u) << outcome.error->message;
  auto& [rank, failure] = *outcome.error->ranks.begin();
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(failure.kind, rank_failure::kind_type::timeout);
  for (auto& part :
       {std::string{missing}, place(), std::string{"without CPU time or I/O"}})
    EXPECT_NE(failure.what.find(part), std::string::npos) << failure.what;
  expect_stacks();
}

/// Rank 1 never comes to the group, which is made before the loop.
void stay_away_from_the_group(train_context& context) {
  if (context.rank() == 1)
    stays_away("");
}

class torch_meetings_test : public testing::TestWithParam<backend> {
protected:
  void SetUp() override {
    if (GetParam() == backend::gloo && !has_gloo())
      GTEST_SKIP() << "this build has no Gloo";
  }

  torch_options options() const {
    torch_options x;
    x.scaling.num_workers = 2;
    x.run.name = "run";
    x.run.storage_path = storage_.path();
    x.run.quiet = true;
    // The group looks after its ranks at a part of this.
    x.run.hang_timeout = std::chrono::milliseconds{600};
    x.torch.backend = GetParam();
    return x;
  }

  temporary_folder storage_;
};

TEST_P(torch_meetings_test, ranks_that_reduce_and_report_end_with_both_named) {
  // Beyond the time after which the circle is named: on a busy machine, the
  // idle rank could be ended first.
  auto with = options();
  with.run.hang_timeout = std::chrono::seconds{30};
  auto outcome =
    torch_trainer{reduce_beside_a_report, std::string{}, with}.fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->message,
            "Ranks 0, 1: misuse: the ranks are in different calls: rank 0 in "
            "collective 1, rank 1 in report 0");
}

TEST_P(torch_meetings_test, a_rank_that_never_comes_to_the_group_is_ended) {
  if (GetParam() == backend::local)
    GTEST_SKIP() << "ranks meet in its first collective";
  auto with = options();
  with.run.rank_hooks.before_loop = stay_away_from_the_group;
  auto outcome = torch_trainer{[](train_context&, const std::string&) {},
                               std::string{}, with}
                   .fit();
  ASSERT_TRUE(outcome.error);
  ASSERT_EQ(outcome.error->ranks.size(), 1u) << outcome.error->message;
  auto& [rank, failure] = *outcome.error->ranks.begin();
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(failure.kind, rank_failure::kind_type::timeout);
  EXPECT_NE(failure.what.find("the start of the group: rank 1 is missing"),
            std::string::npos)
    << failure.what;
}

TEST_P(torch_meetings_test, a_loop_with_a_reduction_under_way_may_report) {
  own_system system;
  auto until = storage_ / "until";
  auto handle =
    torch_trainer{report_beside_a_reduction, until.string(), options()}.start(
      system);
  ASSERT_TRUE(handle) << handle.error().message;
  auto waits = [&] { return handle->status().waits; };
  while (waits().find("is missing") == std::string::npos
         && !is_terminal(handle->status().state))
    std::this_thread::yield();
  write_bytes(until, "x");
  auto outcome = handle->wait();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("sum"), metric_value{2.0});
}

TEST_P(torch_meetings_test, a_rank_that_breaks_amid_a_reduction_is_to_blame) {
  auto closing = storage_ / "closing";
  auto outcome =
    torch_trainer{break_beside_a_reduction, closing.string(), options()}.fit();
  ASSERT_TRUE(outcome.error);
  ASSERT_EQ(outcome.error->ranks.size(), 1u) << outcome.error->message;
  auto& [rank, failure] = *outcome.error->ranks.begin();
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(failure.what, "bad input");
}

TEST_P(torch_meetings_test, a_process_that_a_loop_forked_leaves_its_group) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  for (std::string action : {"return", "throw", "reduce", "read"}) {
    auto with = options();
    with.run.name = action;
    with.run.hang_timeout = std::chrono::seconds{60};
    auto outcome = torch_trainer{leave_in_child, action, with}.fit();
    ASSERT_FALSE(outcome.error) << action << ": " << outcome.error->message;
    EXPECT_EQ(outcome.metrics.at("code").number(), action == "return" ? 0 : 1)
      << action;
    EXPECT_EQ(outcome.metrics.at("left").number(), 0) << action;
  }
}

INSTANTIATE_TEST_SUITE_P(groups, torch_meetings_test,
                         testing::Values(backend::local, backend::gloo),
                         [](auto& x) {
                           return std::string{to_string(x.param)};
                         });

std::string name_of(const testing::TestParamInfo<parameters>& x) {
  return std::string{to_string(std::get<0>(x.param))}
         + (std::get<1>(x.param) ? "_in_dataset" : "_in_loop");
}

INSTANTIATE_TEST_SUITE_P(groups, torch_hangs_test,
                         testing::Combine(testing::Values(backend::local,
                                                          backend::gloo),
                                          testing::Bool()),
                         name_of);

} // namespace troupe::internal::test
