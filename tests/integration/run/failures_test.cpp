// Ranks that fail: each cause is named, groups restart, nothing is lost.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>

#include "tests/integration/run/run_test.hpp"
#include "tests/support/sanitized.hpp"

namespace troupe::internal::test {

using kind = rank_failure::kind_type;

TEST_F(run_test, an_exception_names_its_rank_and_text) {
  auto outcome = run({.action = "throw", .rank = 1, .step = 1});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::exception);
  EXPECT_EQ(failure.what, "the loss is a banana");
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(outcome.error->code, ec::rank_failed);
  EXPECT_NE(outcome.error->message.find("Rank 1"), std::string::npos)
    << outcome.error->message;
  EXPECT_THROW(outcome.value_or_throw(), run_failed);
}

// More than fits into a message; for a sanitizer, only more than is kept of it.
constexpr std::size_t long_text = std::size_t{sanitized ? 5 : 65} << 20;

void throw_at_length(train_context& context) {
  if (context.rank() == 1)
    throw std::runtime_error{"begin " + std::string(long_text, 'x') + " end\n"};
  context.barrier();
}

TEST_F(run_test, an_exception_of_any_length_is_complete_in_the_ranks_log) {
  auto outcome =
    data_parallel_trainer{
      throw_at_length,
      train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::exception);
  EXPECT_TRUE(failure.what.starts_with("begin xxx"));
  EXPECT_TRUE(failure.what.ends_with(
    "x… (cut; it has " + std::to_string(long_text + 11) + " bytes)"));
  auto log = run_path() / "logs" / "rank_1.log";
  EXPECT_TRUE(
    outcome.error->message.ends_with("(cut; see " + log.string() + ')'))
    << outcome.error->message;
  auto text = bytes_of(log);
  EXPECT_TRUE(
    text.starts_with("troupe: rank 1 failed: its loop threw an instance of "
                     "'std::runtime_error'\n  what():  begin xxx"));
  EXPECT_TRUE(text.ends_with("x end\n\n"));
  EXPECT_GT(text.size(), long_text);
  EXPECT_LT(fs::file_size(run_path() / "state.json"), 100'000u);
}

TEST_F(run_test, an_exception_of_a_thread_is_in_the_ranks_log) {
  run({.action = "thread_throw", .rank = 1, .step = 1});
  EXPECT_NE(bytes_of(run_path() / "logs" / "rank_1.log")
              .find("what():  the helper thread fell"),
            std::string::npos);
}

TEST_F(run_test, an_exception_without_a_text_is_reported) {
  auto outcome = run({.action = "throw_number", .rank = 1, .step = 1});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::exception);
  EXPECT_EQ(failure.what, "an exception that is not a std::exception");
}

TEST_F(run_test, an_exit_code_is_reported) {
  auto outcome = run({.action = "exit", .rank = 0, .step = 1});
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::exit_code);
  EXPECT_EQ(failure.code, 3);
}

TEST_F(run_test, a_segmentation_fault_is_named) {
  auto outcome = run({.action = "segfault", .rank = 1, .step = 0});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::signal);
  EXPECT_EQ(failure.code, SIGSEGV);
}

TEST_F(run_test, a_killed_rank_is_named) {
  auto outcome = run({.action = "kill", .rank = 1, .step = 2});
  auto& failure = only_failure(outcome, 1);
  EXPECT_EQ(failure.kind, kind::signal);
  EXPECT_EQ(failure.code, SIGKILL);
  EXPECT_GT(failure.pid, 0);
}

TEST_F(run_test, an_exception_in_a_thread_of_the_loop_is_reported) {
  auto outcome = run({.action = "thread_throw", .rank = 0, .step = 1});
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::thread_exception);
  EXPECT_NE(failure.what.find("the helper thread fell"), std::string::npos);
}

TEST_F(run_test, what_was_reported_before_a_failure_is_kept) {
  auto outcome = run({.action = "kill", .rank = 1, .step = 2});
  ASSERT_TRUE(outcome.checkpoint);
  EXPECT_EQ(bytes_of(outcome.checkpoint->path() / "step.txt"), "2\n");
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 2u);
}

class restart_test : public run_test,
                     public ::testing::WithParamInterface<const char*> {};

TEST_P(restart_test, a_group_resumes_from_its_last_checkpoint) {
  auto outcome =
    run({.action = GetParam(), .rank = 1, .step = 2, .steps = 5}, 2, 1);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 5u);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ((*rows)[step].index, static_cast<std::uint64_t>(step));
    EXPECT_EQ((*rows)[step].values[0].at("step"), metric_value{step});
    EXPECT_EQ((*rows)[step].attempt, step < 2 ? 0u : 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(causes, restart_test,
                         ::testing::Values("throw", "exit", "segfault", "kill",
                                           "thread_throw"));

TEST_F(run_test, ranks_that_are_killed_together_count_as_one_failure) {
  auto outcome =
    run({.action = "kill", .rank = -1, .step = 2, .steps = 5}, 3, 1);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  EXPECT_EQ(outcome.metrics.at("step"), metric_value{4});
}

TEST_F(run_test, failures_beyond_the_limit_end_the_run) {
  auto outcome = run(
    {.action = "throw", .rank = 0, .step = 1, .attempt = -1, .steps = 3}, 2, 2);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.attempts, 3u);
}

TEST_F(run_test, every_rank_that_failed_alike_is_named_in_one_line) {
  auto outcome = run({.action = "throw", .rank = -1, .step = 0}, 3);
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("the loss is a banana"),
            std::string::npos);
  EXPECT_GE(outcome.error->ranks.size(), 1u);
}

TEST_F(run_test, unequal_numbers_of_reports_name_the_ranks) {
  auto outcome = run({.action = "return", .rank = 1, .step = 1}, 3);
  ASSERT_TRUE(outcome.error);
  auto& text = outcome.error->message;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("report 1"), std::string::npos) << text;
}

TEST_F(run_test, a_barrier_that_waits_too_long_names_the_missing_rank) {
  train_options options{.scaling = {.num_workers = 3}, .run = config()};
  options.run.report_timeout = std::chrono::milliseconds{300};
  auto outcome = run({.action = "wait_forever", .rank = 0, .step = 1}, options);
  auto& failure = only_failure(outcome, 0);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("rank 0"), std::string::npos) << failure.what;
}

void wait_for_rank_2(train_context& context) {
  if (context.rank() == 2)
    for (;;)
      pause();
  context.barrier();
}

TEST_F(run_test, the_limit_of_a_report_holds_for_a_barrier_too) {
  train_options options{.scaling = {.num_workers = 3}, .run = config()};
  options.run.report_timeout = std::chrono::milliseconds{300};
  auto outcome = data_parallel_trainer{wait_for_rank_2, options}.fit();
  auto& failure = only_failure(outcome, 2);
  EXPECT_EQ(failure.kind, kind::timeout);
  EXPECT_NE(failure.what.find("barrier"), std::string::npos) << failure.what;
  EXPECT_NE(failure.what.find("rank 2"), std::string::npos) << failure.what;
}

TEST_F(run_test, a_file_from_two_ranks_is_refused_with_both_named) {
  auto outcome =
    run({.action = "same_file", .rank = 9, .steps = 1, .checkpoint_by = -2});
  ASSERT_TRUE(outcome.error);
  auto& text = outcome.error->message;
  EXPECT_NE(text.find("model.bin"), std::string::npos) << text;
  EXPECT_FALSE(outcome.checkpoint);
}

TEST_F(run_test, metrics_that_are_too_large_are_refused) {
  auto outcome = run({.action = "huge_metrics", .rank = 0, .step = 1});
  auto& what = only_failure(outcome, 0).what;
  EXPECT_NE(what.find("4194304"), std::string::npos) << what;
  EXPECT_NE(what.find(std::to_string((5 << 20) + 4)), std::string::npos);
}

TEST_F(run_test, a_report_of_ten_thousand_metrics_is_stored) {
  auto outcome = run({.action = "many_metrics", .rank = 0, .step = 0}, 1);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_FALSE(rows->empty());
  EXPECT_EQ(rows->front().values[0].size(), 10'000u);
  EXPECT_EQ(rows->front().values[0].at("gradient_norm/layer_9999"),
            metric_value{4999.5});
}

TEST_F(run_test, a_metric_without_a_name_is_refused) {
  auto outcome = run({.action = "empty_name", .rank = 0, .step = 1});
  EXPECT_NE(only_failure(outcome, 0).what.find("empty name"),
            std::string::npos);
}

TEST_F(run_test, an_empty_checkpoint_is_refused) {
  auto outcome = run({.action = "empty_checkpoint", .rank = 0, .step = 1});
  EXPECT_EQ(only_failure(outcome, 0).kind, kind::exception);
}

TEST_F(run_test, a_missing_checkpoint_folder_is_named) {
  auto missing = (storage_ / "nowhere").string();
  auto outcome =
    run({.action = "missing_folder", .rank = 0, .step = 1, .text = missing});
  EXPECT_NE(only_failure(outcome, 0).what.find(missing), std::string::npos);
}

TEST_F(run_test, a_broadcast_that_is_too_large_is_refused_on_every_rank) {
  auto outcome = run({.action = "survived_huge_broadcast", .step = 1});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history().value();
  auto row = std::ranges::find_if(
    rows, [](auto& x) { return x.values[0].contains("refused"); });
  ASSERT_NE(row, rows.end());
  ASSERT_EQ(row->values.size(), 2u);
  for (auto& values : row->values) {
    auto what = to_string(values.at("refused"));
    EXPECT_NE(what.find("1048576"), std::string::npos) << what;
  }
}

TEST_F(run_test, a_broadcast_that_only_rank_0_makes_is_named_with_its_refusal) {
  auto outcome = run({.action = "huge_broadcast", .rank = 0, .step = 1});
  ASSERT_TRUE(outcome.error);
  auto& text = outcome.error->message;
  EXPECT_NE(text.find("1048576"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 in report 1"), std::string::npos) << text;
}

/// A loop whose ranks catch what a broadcast throws and stay in step.
void catch_and_continue(train_context& context) {
  std::string word;
  try {
    word = context.broadcast_from_rank_zero(std::string(2 << 20, 'x'));
  } catch (const train_error& x) {
    word = context.broadcast_from_rank_zero(std::string{x.what()});
  }
  context.report({{"word", word}});
}

TEST_F(run_test, ranks_that_catch_a_refused_broadcast_stay_in_step) {
  auto outcome =
    data_parallel_trainer{
      catch_and_continue,
      train_options{.scaling = {.num_workers = 3}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("word"),
            metric_value{"rank 0 refused broadcast 0: a broadcast of 2097161 "
                         "bytes is over the limit of 1048576"});
}

/// A value that no archive takes.
struct unwritable {
  template <class Archive>
  void serialize(Archive&) {
    throw std::runtime_error{"no bytes for this"};
  }
};

void broadcast_unwritable(train_context& context) {
  context.broadcast_from_rank_zero(unwritable{});
}

TEST_F(run_test, a_value_that_rank_0_cannot_serialize_ends_all_with_its_cause) {
  auto outcome =
    data_parallel_trainer{
      broadcast_unwritable,
      train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("no bytes for this"), std::string::npos)
    << outcome.error->message;
}

/// Ranks that come to different calls, in each of the ways of *which*.
void meet_wrongly(train_context& context, const std::string& which) {
  auto first = context.rank() == 0;
  if (which == "report and barrier") {
    first ? context.report({}) : context.barrier();
  } else if (which == "barrier and broadcast") {
    if (first)
      context.barrier();
    else
      context.broadcast_from_rank_zero(0);
  } else if (which == "report that was refused") {
    try {
      context.report({{first ? "x" : "", 1}});
    } catch (const train_error&) {
      context.barrier();
    }
  } else if (which == "reports ahead") {
    for (int i = 0; first && i < 40; ++i)
      context.report({}, {.barrier = false});
    context.barrier();
  } else if (which == "end behind a report") {
    if (first)
      context.report({}, {.barrier = false});
    else
      context.barrier();
  }
}

TEST_F(run_test, ranks_in_different_calls_end_at_once_with_both_named) {
  for (std::string which :
       {"report and barrier", "barrier and broadcast",
        "report that was refused", "reports ahead", "end behind a report"}) {
    SCOPED_TRACE(which);
    auto outcome =
      data_parallel_trainer{meet_wrongly, which,
                            train_options{.scaling = {.num_workers = 2},
                                          .run = config("run " + which)}}
        .fit();
    ASSERT_TRUE(outcome.error);
    auto& text = outcome.error->message;
    EXPECT_NE(text.find("the ranks are in different calls"), std::string::npos)
      << text;
    EXPECT_NE(text.find("rank 0 in "), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1 in "), std::string::npos) << text;
  }
}

/// Rank 1 catches whatever leaves its calls and makes the next one.
void catch_everything(train_context& context) {
  for (int i = 0; i < 1000; ++i)
    try {
      if (context.rank() == 0)
        context.report({{"i", i}});
      else
        context.barrier();
    } catch (const std::exception&) {
    }
}

TEST_F(run_test, ranks_that_catch_every_error_end_all_the_same) {
  for (auto where : {placement::processes, placement::in_process}) {
    auto name = where == placement::processes ? "a" : "b";
    auto outcome = data_parallel_trainer{
      catch_everything,
      train_options{
        .scaling = {.num_workers = 2, .where = where},
        .run = config(
          name)}}.fit();
    ASSERT_TRUE(outcome.error);
    EXPECT_NE(outcome.error->message.find("different calls"), std::string::npos)
      << outcome.error->message;
  }
}

} // namespace troupe::internal::test
