// Runs that end as they should: what they leave behind.

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/support/child.hpp"
#include "troupe/callbacks/report_page/report_page.hpp"

namespace troupe::internal::test {

TEST_F(run_test, a_run_of_two_processes_finishes_with_its_last_metrics) {
  auto outcome = run({});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_EQ(outcome.metrics, (metrics{{"step", 2}, {"rank", 0}}));
  EXPECT_EQ(outcome.path, run_path());
  ASSERT_TRUE(outcome.checkpoint);
  EXPECT_TRUE(outcome.checkpoint->verify());
  EXPECT_EQ(outcome.attempts, 1u);
}

TEST_F(run_test, the_history_has_the_reports_of_all_ranks_in_order) {
  auto outcome = run({.steps = 5}, 3);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto history = outcome.metrics_history();
  ASSERT_TRUE(history) << history.error().message;
  ASSERT_EQ(history->size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ((*history)[i].index, i);
    ASSERT_EQ((*history)[i].values.size(), 3u);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ((*history)[i].values[rank].at("rank"), metric_value{rank});
  }
}

TEST_F(run_test, every_rank_may_add_files_to_a_checkpoint) {
  auto outcome = run({.steps = 1, .checkpoint_by = -2}, 3);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  ASSERT_TRUE(outcome.checkpoint);
  for (auto name : {"rank_0.txt", "rank_1.txt", "rank_2.txt", "step.txt"})
    EXPECT_TRUE(fs::exists(outcome.checkpoint->path() / name)) << name;
  EXPECT_TRUE(outcome.checkpoint->verify());
}

TEST_F(run_test, metrics_of_rank_0_are_attached_to_a_checkpoint_of_rank_1) {
  auto outcome = run({.steps = 1, .checkpoint_by = 1});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  ASSERT_EQ(outcome.best_checkpoints.size(), 1u);
  EXPECT_EQ(outcome.best_checkpoints[0].values.at("rank"), metric_value{0});
}

TEST_F(run_test, a_result_is_read_back_from_its_folder) {
  auto outcome = run({});
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto again = result::from_path(run_path());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->metrics, outcome.metrics);
  EXPECT_EQ(again->checkpoint, outcome.checkpoint);
  EXPECT_EQ(again->status, outcome.status);
}

TEST_F(run_test, a_result_is_not_read_from_a_current_folder_that_is_gone) {
  EXPECT_TRUE(holds_without_current_folder([] {
    auto found = result::from_path("run");
    auto page = report_page::open("run");
    return !found && found.error().code == ec::storage && !page;
  }));
}

TEST_F(run_test, only_the_best_checkpoints_and_the_latest_are_kept) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.checkpoint = {.num_to_keep = 2,
                            .checkpoint_score_attribute = "step",
                            .checkpoint_score_order = score_order::min};
  auto outcome = run({.steps = 6}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  int folders = 0;
  for (fs::directory_iterator i{run_path() / "checkpoints"}, end; i != end; ++i)
    ++folders;
  EXPECT_EQ(folders, 3); // steps 0 and 1, and the latest
  ASSERT_EQ(outcome.best_checkpoints.size(), 2u);
  EXPECT_EQ(outcome.best_checkpoints.back().values.at("step"), metric_value{0});
}

TEST_F(run_test, what_ranks_print_goes_to_their_logs) {
  auto print = [](train_context& context) {
    std::printf("hello from rank %d\n", context.rank());
  };
  auto outcome =
    data_parallel_trainer{
      print, train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(bytes_of(run_path() / "logs" / "rank_0.log"),
            "hello from rank 0\n");
  EXPECT_EQ(bytes_of(run_path() / "logs" / "rank_1.log"),
            "hello from rank 1\n");
}

void ask_who_i_am(train_context& context) {
  context.report({{"rank", context.rank()},
                  {"size", context.world_size()},
                  {"local_rank", context.local_rank()},
                  {"local_size", context.local_world_size()},
                  {"node", context.node_rank()},
                  {"name", context.run_name()},
                  {"same", &troupe::context() == &context}});
}

TEST_F(run_test, a_rank_knows_who_it_is) {
  auto outcome =
    data_parallel_trainer{
      ask_who_i_am,
      train_options{.scaling = {.num_workers = 3}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 1u);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ((*rows)[0].values[rank], (metrics{{"rank", rank},
                                                {"size", 3},
                                                {"local_rank", rank},
                                                {"local_size", 3},
                                                {"node", 0},
                                                {"name", "run"},
                                                {"same", true}}));
}

void meet(train_context& context) {
  for (int i = 0; i < 20; ++i)
    context.barrier();
  std::vector<std::string> words{"one", "two"};
  if (context.rank() != 0)
    words = {"not", "mine"};
  words = context.broadcast_from_rank_zero(words);
  context.report({{"word", words.at(1)}});
}

TEST_F(run_test, ranks_meet_and_share_a_value_of_rank_0) {
  auto outcome =
    data_parallel_trainer{
      meet, train_options{.scaling = {.num_workers = 4}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  for (auto& values : rows->at(0).values)
    EXPECT_EQ(values.at("word"), metric_value{"two"});
}

void run_ahead(train_context& context) {
  for (int i = 0; i < 100; ++i)
    context.report({{"i", i}}, report_options{.barrier = false});
}

TEST_F(run_test, reports_without_barrier_are_paired_all_the_same) {
  auto outcome =
    data_parallel_trainer{
      run_ahead, train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 100u);
  for (int i = 0; i < 100; ++i)
    for (auto& values : (*rows)[i].values)
      EXPECT_EQ(values.at("i"), metric_value{i});
}

void take_a_folder_early(train_context& context) {
  auto files = context.new_checkpoint();
  write_bytes(files.path() / ("r" + std::to_string(context.rank())), "x");
  context.report({{"validation", 1}});
  context.report({{"loss", 1}}, std::move(files));
}

TEST_F(run_test, a_folder_taken_before_another_report_becomes_a_checkpoint) {
  for (int workers : {0, 2}) {
    train_options options{.scaling = {.num_workers = workers}, .run = config()};
    options.run.name = "run_" + std::to_string(workers);
    auto outcome = data_parallel_trainer{take_a_folder_early, options}.fit();
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    ASSERT_TRUE(outcome.checkpoint);
    EXPECT_EQ(outcome.checkpoint->name(), "checkpoint_000001");
    EXPECT_TRUE(outcome.checkpoint->verify());
  }
}

void move_and_be_refused(train_context& context, const fault_plan& plan) {
  auto model = checkpoint::from_directory(plan.text);
  try {
    context.report({{"", 1}}, model, {.move_files = true});
  } catch (const train_error&) {
  }
  context.report({{"left", fs::exists(model.path() / "weights")}});
  context.report({}, model, {.move_files = true});
  context.report({{"left", fs::exists(model.path() / "weights")}});
}

TEST_F(run_test, a_report_that_is_refused_takes_no_files_away) {
  fs::create_directory(storage_ / "model");
  write_bytes(storage_ / "model" / "weights", "1");
  auto outcome =
    data_parallel_trainer{
      move_and_be_refused, fault_plan{.text = (storage_ / "model").string()},
      train_options{.scaling = {.num_workers = 1}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history().value();
  EXPECT_EQ(rows.at(0).values[0].at("left"), metric_value{true});
  EXPECT_EQ(rows.at(2).values[0].at("left"), metric_value{false});
  EXPECT_EQ(bytes_of(outcome.checkpoint->path() / "weights"), "1");
}

void move_without_barrier(train_context& context, const fault_plan& plan) {
  auto rank = std::to_string(context.rank());
  auto first = checkpoint::from_directory(fs::path{plan.text} / "first" / rank);
  auto second =
    checkpoint::from_directory(fs::path{plan.text} / "second" / rank);
  report_options options{
    .checkpoint_name = "same", .move_files = true, .barrier = false};
  context.report({}, first, options);
  context.report({{"left", fs::exists(first.path() / rank)}});
  context.report({}, second, options); // Its name is taken.
}

TEST_F(run_test, a_failed_commit_without_barrier_takes_no_files_away) {
  auto models = storage_ / "models";
  for (auto name : {"first", "second"})
    for (auto rank : {"0", "1"}) {
      fs::create_directories(models / name / rank);
      write_bytes(models / name / rank / rank, name);
    }
  auto outcome =
    data_parallel_trainer{
      move_without_barrier, fault_plan{.text = models.string()},
      train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  ASSERT_TRUE(outcome.error);
  auto rows = outcome.metrics_history().value();
  ASSERT_EQ(rows.size(), 2u) << outcome.error->message;
  EXPECT_EQ(rows[1].values[0].at("left"), metric_value{false});
  EXPECT_EQ(rows[1].values[1].at("left"), metric_value{false});
  EXPECT_EQ(bytes_of(models / "second" / "0" / "0"), "second");
  EXPECT_EQ(bytes_of(models / "second" / "1" / "1"), "second");
}

void list_checkpoints(train_context& context) {
  for (int i = 0; i < 3; ++i) {
    auto files = context.new_checkpoint();
    write_bytes(files.path() / ("r" + std::to_string(context.rank())), "x");
    context.report({{"i", i}}, std::move(files));
  }
  auto known = context.all_reported_checkpoints();
  context.report({{"known", known.size()},
                  {"first", known.at(0).values.at("i").number()},
                  {"mine", context.checkpoint()->name()}});
}

TEST_F(run_test, a_rank_lists_what_the_run_has_kept) {
  auto outcome =
    data_parallel_trainer{
      list_checkpoints,
      train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(
    outcome.metrics,
    (metrics{{"known", 3}, {"first", 0.0}, {"mine", "checkpoint_000002"}}));
}

void report_much(train_context& context) {
  metrics values;
  for (int i = 0; i < 300; ++i)
    values["name" + std::to_string(i)] = i + 0.25;
  for (int i = 0; i < 100; ++i)
    context.report(values);
}

TEST_F(run_test, files_that_are_on_by_default_are_complete_when_fit_returns) {
  for (int workers : {0, 2}) {
    auto name = "run" + std::to_string(workers);
    auto outcome =
      data_parallel_trainer{
        report_much,
        train_options{.scaling = {.num_workers = workers}, .run = config(name)}}
        .fit();
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_TRUE(outcome.unsent.empty());
    auto csv = bytes_of(storage_ / name / "metrics.csv");
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 101);
    EXPECT_NE(bytes_of(storage_ / name / "report.html").find("name299"),
              std::string::npos);
  }
}

TEST_F(run_test, a_result_says_which_files_are_incomplete) {
  // No page takes the place of a folder, here in that of a run that had begun.
  fs::create_directories(run_path() / "report.html");
  fs::create_directory(run_path() / "attempts");
  write_bytes(run_path() / "attempts" / "0", "");
  auto outcome = run({});
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  ASSERT_EQ(outcome.unsent.size(), 1u);
  EXPECT_NE(outcome.unsent[0].find("tracker report_page: "), std::string::npos)
    << outcome.unsent[0];
}

class ends_in_a_placement_test : public run_test,
                                 public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(workers, ends_in_a_placement_test,
                         testing::Values(0, 2));

TEST_P(ends_in_a_placement_test,
       a_callback_that_never_returns_delays_the_run_up_to_a_limit) {
  // Released at the end, so that the test leaves no thread either.
  static std::atomic<bool> release;
  static std::atomic<bool> left;
  release = left = false;
  train_options options{.scaling = {.num_workers = GetParam()},
                        .run = config()};
  options.run.callback_limit = std::chrono::milliseconds{100};
  options.run.callbacks = {on_report(1, [] {
    while (!release)
      std::this_thread::yield();
    left = true;
  })};
  auto outcome = run({}, options);
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  ASSERT_EQ(outcome.unsent.size(), 1u);
  EXPECT_EQ(outcome.unsent[0].find("not called for report 1 and later ones: "
                                   "callback 1 ("),
            0u)
    << outcome.unsent[0];
  auto journal = bytes_of(run_path() / "journal.jsonl");
  EXPECT_NE(journal.find("did not return for "), std::string::npos);
  EXPECT_NE(journal.find("in after_report"), std::string::npos);
  release = true;
  while (!left)
    std::this_thread::yield();
}

TEST_P(ends_in_a_placement_test, a_callback_that_does_not_return_is_named) {
  train_options options{.scaling = {.num_workers = GetParam()},
                        .run = config()};
  options.run.quiet = false;
  options.run.callback_timeout = std::chrono::milliseconds{1};
  // Waits until the console says its name.
  options.run.callbacks = {on_report(1, [] {
    std::string text;
    while (text.find("in after_report has not returned for ")
           == std::string::npos) {
      text = testing::internal::GetCapturedStderr();
      testing::internal::CaptureStderr();
      std::this_thread::yield();
    }
    EXPECT_NE(text.find("callback 1 ("), std::string::npos) << text;
  })};
  testing::internal::CaptureStderr();
  auto outcome = run({}, options);
  (void) testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_TRUE(outcome.unsent.empty());
}

} // namespace troupe::internal::test
