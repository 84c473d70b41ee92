// Sweeps whose trials are real runs.

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <gmock/gmock.h>
#include <troupe/trackers.hpp>

#include "tests/integration/sweep/sweep_fixture.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

namespace {

/// Notes the trials that `ask` and `tell` get.
class noting_searcher : public searcher {
public:
  explicit noting_searcher(std::size_t size) : size_(size) {}

  std::string name() const override { return "noting"; }

  std::optional<metrics> ask(const search_space&, std::size_t index) override {
    asked.push_back(index);
    if (index >= size_)
      return std::nullopt;
    return metrics{{"lr", static_cast<double>(index)}};
  }

  void tell(const trial& x) override { told.push_back(x.index); }

  std::vector<std::size_t> asked, told;

private:
  std::size_t size_;
};

} // namespace

TEST_F(sweep_test, runs_each_combination_of_a_grid_as_a_run_of_its_own) {
  auto x = search({{"lr", choice({0.5, 0.25})}, {"width", integers(1, 2)}},
                  {.searcher = grid_search(), .max_concurrent = 3});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.path, path());
  ASSERT_EQ(x.trials.size(), 4u);
  for (auto& one : x.trials) {
    EXPECT_EQ(one.status, run_status_kind::finished);
    EXPECT_EQ(one.reports, 3u);
    EXPECT_EQ(one.metrics.at("width"), one.params.at("width"));
    auto outcome = x.result_of(one);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->metrics, one.metrics);
    EXPECT_THAT(
      bytes_of(outcome->path / "run.json"),
      HasSubstr(R"(\"lr\":)" + std::string{one.index < 2 ? "0.5" : "0.25"}));
  }
  auto best = x.best();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->name, "trial-0002");
  EXPECT_EQ(best->params.number("lr"), 0.25);
}

TEST_F(sweep_test, one_without_a_name_is_new_each_time) {
  auto options = run();
  options.run.name.reset();
  auto start = [&](decltype(sweep_options::prepare) prepare) {
    return sweep{data_parallel_trainer{train, settings{}, options},
                 widths(1),
                 {.metric = "loss",
                  .searcher = grid_search(),
                  .prepare = std::move(prepare)}}
      .fit();
  };
  auto first = start({});
  EXPECT_EQ(message_of(first), "");
  EXPECT_EQ(first.path.parent_path(), storage_.path());
  EXPECT_TRUE(fs::exists(first.path / "trial-0000" / "journal.jsonl"));
  auto stopped =
    start([](const trial&, run_config&) { ::kill(::getpid(), SIGINT); });
  auto name = stopped.path.filename().string();
  EXPECT_THAT(name, testing::StartsWith("troupe_sweep-"));
  EXPECT_NE(name, first.path.filename().string());
  EXPECT_EQ(message_of(stopped),
            "the sweep was stopped by SIGINT; the next sweep with run.name = \""
              + name + "\" resumes it");
  options.run.name = name;
  auto resumed = start({});
  EXPECT_EQ(message_of(resumed), "");
  EXPECT_EQ(resumed.path, stopped.path);
}

TEST_F(sweep_test, a_custom_searcher_gets_each_result) {
  auto noting = std::make_shared<noting_searcher>(2);
  auto x =
    search({{"lr", uniform(0, 9)}}, {.searcher = noting, .max_concurrent = 1});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.trials.size(), 2u);
  EXPECT_THAT(noting->told, testing::ElementsAre(0, 1));
  auto next = std::make_shared<noting_searcher>(3);
  x = search({{"lr", uniform(0, 9)}}, {.searcher = next, .max_concurrent = 1});
  EXPECT_THAT(next->told, testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(next->asked, testing::ElementsAre(2, 3));
}

TEST_F(sweep_test, halving_ends_trials_that_are_worse) {
  // In this order one after the other, each worse than the one before.
  auto x = search({{"lr", choice({0.0, 1.0, 2.0, 3.0})}},
                  {.searcher = grid_search(),
                   .halving = halving_options{.reduction = 2, .max_reports = 5},
                   .max_concurrent = 1},
                  {.reports = 100});
  ASSERT_FALSE(x.error) << x.error->message;
  ASSERT_EQ(x.trials.size(), 4u);
  EXPECT_EQ(x.trials[0].reports, 5u);
  EXPECT_THAT(x.trials[0].reason, HasSubstr("run.stop.reports is 5"));
  for (std::size_t i : {1, 3}) {
    EXPECT_EQ(x.trials[i].status, run_status_kind::finished);
    EXPECT_EQ(x.trials[i].reports, 1u) << i;
    EXPECT_THAT(x.trials[i].reason, HasSubstr("not among the best 1 in 2"));
  }
}

TEST_F(sweep_test, continues_without_a_trial_that_fails) {
  auto x = search(widths(3), {.searcher = grid_search(), .max_concurrent = 2},
                  {.fails_from = 3});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.trials.at(2).status, run_status_kind::errored);
  EXPECT_THAT(x.trials.at(2).reason, HasSubstr("it is too wide"));
  EXPECT_TRUE(x.best());
}

TEST_F(sweep_test, ends_by_itself_once_trials_fail_and_none_finishes) {
  auto options = sweep_options{.searcher = grid_search(), .max_concurrent = 1};
  auto x = search(widths(5), options, {.fails_from = 1});
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::rank_failed);
  EXPECT_EQ(x.trials.size(), 3u);
  EXPECT_THAT(message_of(x),
              HasSubstr("3 trials failed and none has finished"));
  EXPECT_THAT(message_of(x), HasSubstr("the first, trial-0000: "));
  EXPECT_THAT(message_of(x), HasSubstr("it is too wide"));
  auto kept = read_sweep(path());
  ASSERT_TRUE(kept);
  ASSERT_TRUE(kept->history.end);
  EXPECT_EQ(kept->history.end->reason, message_of(x));
  // The program was corrected.
  x = search(widths(5), options);
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.size(), 5u);
  EXPECT_TRUE(x.best());
}

TEST_F(sweep_test, prepares_each_trial) {
  std::vector<std::string> prepared;
  auto x =
    search(widths(2), {.searcher = grid_search(),
                       .max_concurrent = 1,
                       .prepare = [&](const trial& one, run_config& config) {
                         prepared.push_back(one.name);
                         config.name = "elsewhere";
                         config.worker_env["TRIAL"] = one.name;
                         config.metrics_csv = false;
                       }});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_THAT(prepared, testing::ElementsAre("trial-0000", "trial-0001"));
  EXPECT_TRUE(fs::exists(path() / "trial-0001" / "run.json"));
  EXPECT_FALSE(fs::exists(path() / "trial-0001" / "metrics.csv"));
}

TEST_F(sweep_test, gives_each_trial_trackers_of_its_own) {
  auto with = [&](std::shared_ptr<const tracker> one) {
    auto options = run();
    options.run.trackers = {std::move(one)};
    return sweep{
      data_parallel_trainer{train, settings{}, options},
      widths(3),
      {.metric = "loss", .searcher = grid_search(), .max_concurrent = 2}}
      .fit();
  };
  auto x = with(prometheus_tracker());
  EXPECT_THAT(message_of(x),
              HasSubstr("the tracker prometheus serves one run at a time"));
  x = with(result_json_tracker());
  ASSERT_FALSE(x.error) << x.error->message;
  for (auto& one : x.trials) {
    auto lines = bytes_of(path() / one.name / "result.json");
    EXPECT_EQ(std::ranges::count(lines, '\n'), 3) << one.name;
  }
}

TEST_F(sweep_test, makes_a_page_of_all_trials) {
  auto x = search(widths(2), {.searcher = grid_search()});
  ASSERT_FALSE(x.error) << x.error->message;
  auto page = bytes_of(path() / "compare.html");
  EXPECT_THAT(page, HasSubstr("finished: 2 trials; best loss "));
  EXPECT_THAT(page, HasSubstr(R"("page":"trial-0001/report.html")"));
}

} // namespace troupe::internal::test
