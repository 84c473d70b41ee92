// Sweeps whose trials are real runs.

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <troupe/sweep.hpp>
#include <troupe/trackers.hpp>

#include "tests/integration/run/victim.hpp"
#include "tests/support/pretended_gpus.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/process/cpu_plan.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

namespace {

struct settings {
  double lr = 0;
  int width = 1;
  int reports = 3;
  int fails_from = 1000; // width from which a trial fails
  std::string go;        // trials of width 3 wait until this file is there
  std::string metric = "loss";
  std::string ballast; // a file with which trials of width 2 fill the disk

  void validate() const {
    if (width == 13)
      throw std::invalid_argument{"width: 13 brings bad luck"};
  }

  TROUPE_FIELDS(lr, width, reports, fails_from, go, metric, ballast)
};

/// The loss goes down to `lr` from `lr + 1`.
void train(train_context& context, const settings& cfg) {
  int step = 0;
  if (auto& last = context.checkpoint())
    fs::ifstream{last->path() / "step"} >> step;
  if (cfg.width >= cfg.fails_from)
    throw std::runtime_error{"it is too wide"};
  for (; step < cfg.reports && !context.stop_requested(); ++step) {
    if (step == 1 && cfg.width == 3 && !cfg.go.empty())
      wait_for(fs::path{cfg.go}.parent_path(),
               [&] { return fs::exists(cfg.go); });
    if (step == 1 && cfg.width == 2 && !cfg.ballast.empty())
      fill_up(cfg.ballast);
    context.report({{cfg.metric, cfg.lr + 1.0 / (step + 1)},
                    {"pid", static_cast<int>(getppid())},
                    {"width", cfg.width}},
                   [&](staged_checkpoint& files) {
                     fs::ofstream{files.path() / "step"} << step + 1;
                   });
  }
}

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

class sweep_test : public ::testing::Test {
public:
  static train_options options_in(const fs::path& storage) {
    return {.scaling = {.num_workers = 1},
            .run = {.name = "search",
                    .storage_path = storage,
                    .stop_timeout = std::chrono::milliseconds{300},
                    .quiet = true}};
  }

  static search_space widths(int last) {
    return {{"width", integers(1, last)}};
  }

protected:
  sweep_result search(search_space space, sweep_options options,
                      const settings& cfg = {}) {
    if (options.metric.empty())
      options.metric = "loss";
    return sweep{data_parallel_trainer{train, cfg, run()}, std::move(space),
                 std::move(options)}
      .fit();
  }

  train_options run() const { return options_in(storage_.path()); }

  static std::string message_of(const sweep_result& x) {
    return x.error ? x.error->message : "";
  }

  fs::path path() const { return storage_ / "search"; }

  temporary_folder storage_;
};

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

TEST_F(sweep_test, repeats_no_trial_that_has_ended_and_can_be_extended) {
  auto options = sweep_options{
    .trials = 2, .searcher = random_search(3), .max_concurrent = 1};
  auto first = search({{"lr", uniform(0, 1)}}, options);
  ASSERT_FALSE(first.error) << first.error->message;
  options.trials = 3;
  auto second = search({{"lr", uniform(0, 1)}}, options);
  ASSERT_FALSE(second.error) << second.error->message;
  ASSERT_EQ(second.trials.size(), 3u);
  EXPECT_EQ(second.trials[0], first.trials[0]);
  EXPECT_EQ(second.trials[1], first.trials[1]);
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

TEST_F(sweep_test, a_run_is_refused_the_name_of_a_sweep) {
  auto x = search(widths(1), {.searcher = grid_search()});
  ASSERT_FALSE(x.error) << x.error->message;
  auto journal = bytes_of(path() / "sweep.jsonl");
  auto refused = data_parallel_trainer{train, settings{}, run()}.fit();
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, ec::conflict);
  EXPECT_EQ(refused.error->message,
            path().string()
              + " is the folder of a sweep: choose another run.name");
  EXPECT_FALSE(fs::exists(path() / "run.json"));
  EXPECT_EQ(bytes_of(path() / "sweep.jsonl"), journal);
}

TEST_F(sweep_test, resumes_after_a_kill_without_repeating_a_trial) {
  auto go = storage_ / "go";
  victim sweeping{storage_.path().string(), go.string()};
  // Two trials have ended and the third is within its loop.
  auto lines = [&] { return bytes_of(path() / "sweep.jsonl"); };
  auto is_within = [&] {
    auto text = lines();
    std::size_t ends = 0;
    for (auto at = text.find("trial_ended"); at != text.npos;
         at = text.find("trial_ended", at + 1))
      ++ends;
    return ends == 2
           && bytes_of(path() / "trial-0002" / "journal.jsonl")
                  .find("\"batch\":0")
                != std::string::npos;
  };
  wait_for(storage_.path(), is_within);
  sweeping.kill(SIGKILL);
  auto killed = sweeping.wait();
  EXPECT_TRUE(WIFSIGNALED(killed));
  std::map<std::string, std::string> before;
  for (auto name : {"trial-0000", "trial-0001"})
    before[name] = bytes_of(path() / name / "journal.jsonl");
  write_bytes(go, "");
  auto x = search(widths(4), {.searcher = grid_search(), .max_concurrent = 1},
                  {.go = go.string()});
  ASSERT_FALSE(x.error) << x.error->message;
  ASSERT_EQ(x.trials.size(), 4u);
  for (auto& [name, journal] : before)
    EXPECT_EQ(bytes_of(path() / name / "journal.jsonl"), journal) << name;
  auto resumed = x.result_of(x.trials[2]);
  ASSERT_TRUE(resumed);
  EXPECT_GT(resumed->attempts, 1u);
  EXPECT_EQ(x.trials[2].reports, 3u) << "resumed from its checkpoint";
  EXPECT_EQ(x.trials[3].status, run_status_kind::finished);
}

TEST_F(sweep_test, a_signal_ends_it_and_the_next_start_resumes_it) {
  auto go = storage_ / "go";
  victim sweeping{storage_.path().string(), go.string()};
  wait_for(storage_.path(), [&] {
    return bytes_of(path() / "trial-0002" / "journal.jsonl").find("\"batch\":0")
           != std::string::npos;
  });
  sweeping.kill(SIGINT);
  auto ended = sweeping.wait();
  ASSERT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 42);
  write_bytes(go, "");
  auto x = search(widths(4), {.searcher = grid_search(), .max_concurrent = 1},
                  {.go = go.string()});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.trials.size(), 4u);
  EXPECT_EQ(x.trials.at(2).reports, 3u);
}

TEST_F(sweep_test, names_a_metric_that_no_trial_reports) {
  auto x =
    search(widths(3),
           {.metric = "los", .searcher = grid_search(), .max_concurrent = 1});
  EXPECT_THAT(message_of(x), HasSubstr("metric 'los'; trial-0000 reported: "
                                       "loss=0.333333"));
  ASSERT_EQ(x.trials.size(), 1u);
  EXPECT_EQ(
    search(widths(3),
           {.metric = "los", .searcher = grid_search(), .max_concurrent = 1})
      .trials.size(),
    1u)
    << "no trial begins as long as it is wrong";
  x = search(widths(3), {.searcher = grid_search(), .max_concurrent = 1});
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.size(), 3u);
  EXPECT_NEAR(*x.trials[0].score, 1.0 / 3, 1e-9) << "nothing was lost";
}

TEST_F(sweep_test, refuses_what_can_never_work_and_writes_nothing) {
  auto refusal = [&](search_space space, sweep_options options = {}) {
    if (!options.searcher)
      options.searcher = grid_search();
    return message_of(search(std::move(space), std::move(options)));
  };
  EXPECT_THAT(refusal({}), HasSubstr("has no params"));
  EXPECT_THAT(refusal({{"lrr", uniform(0, 1)}}),
              HasSubstr("'lrr' of the sweep: there is no field 'lrr'"));
  EXPECT_THAT(refusal({{"width", uniform(0, 1.5)}}),
              HasSubstr("width: expected integer"));
  EXPECT_THAT(refusal({{"width", integers(1, std::int64_t{1} << 40)}}),
              HasSubstr("out of range"));
  EXPECT_THAT(refusal(widths(2), {.searcher = grid_search(0)}),
              HasSubstr("grid_search: steps must be >= 1, got 0"));
  EXPECT_THAT(refusal(widths(2), {.searcher = random_search()}),
              HasSubstr("trials is unset"));
  EXPECT_THAT(refusal(widths(2), {.trials = 0}), HasSubstr("trials"));
  EXPECT_THAT(refusal(widths(2), {.max_concurrent = 0}),
              HasSubstr("max_concurrent"));
  EXPECT_THAT(refusal(widths(2), {.max_failed_trials = 0}),
              HasSubstr("max_failed_trials"));
  EXPECT_THAT(refusal(widths(2), {.halving = halving_options{.reduction = 1}}),
              HasSubstr("halving.reduction"));
  auto unnamed =
    sweep{data_parallel_trainer{train, settings{}, run()}, widths(2), {}}.fit();
  EXPECT_THAT(message_of(unnamed), HasSubstr("metric is empty"));
  auto shared = run();
  shared.run.callbacks = {std::make_shared<user_callback>()};
  auto x =
    sweep{data_parallel_trainer{train, settings{}, shared},
          widths(2),
          {.metric = "loss", .searcher = grid_search(), .max_concurrent = 2}}
      .fit();
  EXPECT_THAT(message_of(x), HasSubstr("serves one run at a time"));
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(sweep_test, refuses_other_hosts_and_writes_nothing) {
  auto refusal = [&](const std::function<void(train_options&)>& change) {
    auto options = run();
    change(options);
    return message_of(sweep{data_parallel_trainer{train, settings{}, options},
                            widths(2),
                            {.metric = "loss", .searcher = grid_search()}}
                        .fit());
  };
  EXPECT_EQ(refusal([](auto& x) {
              x.scaling.num_workers = 2;
              x.scaling.hosts = {"host-a", "host-b"};
            }),
            "the trials of a sweep run on this host, but there are the hosts "
            "host-a, host-b: start the sweep on one host, or one run on all");
  EXPECT_THAT(refusal([](auto& x) { x.scaling.agents = 2; }),
              HasSubstr("agents of 2 other hosts are to join"));
  EXPECT_THAT(refusal([](auto& x) { x.run.agent_ticket = "ticket"; }),
              HasSubstr("agent_ticket lets other hosts join"));
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(sweep_test, a_trial_that_the_config_refuses_has_failed) {
  auto x = search({{"width", choice({12, 13, 14})}},
                  {.searcher = grid_search(), .max_concurrent = 1});
  EXPECT_EQ(message_of(x), "");
  ASSERT_EQ(x.trials.size(), 3u);
  EXPECT_EQ(x.trials[0].status, run_status_kind::finished);
  EXPECT_EQ(x.trials[1].status, run_status_kind::errored);
  EXPECT_EQ(x.trials[1].reason, "width: 13 brings bad luck");
  EXPECT_EQ(x.trials[2].status, run_status_kind::finished);
  EXPECT_FALSE(fs::exists(path() / "trial-0001")) << "no run began";
}

TEST_F(sweep_test, trials_that_failed_run_again_after_a_correction) {
  auto one_by_one = [](bool again) {
    return sweep_options{
      .searcher = grid_search(), .max_concurrent = 1, .retry_failed = again};
  };
  auto x = search(widths(3), one_by_one(false), {.fails_from = 2});
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.at(2).status, run_status_kind::errored);
  x = search(widths(3), one_by_one(false));
  EXPECT_EQ(x.trials.at(2).status, run_status_kind::errored);
  x = search(widths(3), one_by_one(true));
  EXPECT_EQ(message_of(x), "");
  for (auto& one : x.trials) {
    EXPECT_EQ(one.status, run_status_kind::finished) << one.name;
    EXPECT_EQ(one.reports, 3u) << one.name;
  }
}

TEST_F(sweep_test, a_full_disk_ends_the_sweep_and_blames_no_trial) {
  small_disk disk{storage_ / "disk", "8m"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto ballast = disk.path() / "ballast";
  auto start = [&](const settings& cfg) {
    return sweep{
      data_parallel_trainer{train, cfg, options_in(disk.path())},
      widths(3),
      {.metric = "loss", .searcher = grid_search(), .max_concurrent = 1}}
      .fit();
  };
  auto x = start({.ballast = ballast.string()});
  EXPECT_THAT(message_of(x), HasSubstr("trial-0001: "));
  EXPECT_THAT(message_of(x), HasSubstr("No space left on device"));
  ASSERT_EQ(x.trials.size(), 2u);
  EXPECT_EQ(x.trials[0].status, run_status_kind::finished);
  EXPECT_EQ(x.trials[1].status, run_status_kind::running) << "to be resumed";
  fs::remove(ballast);
  x = start({});
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.size(), 3u);
  for (auto& one : x.trials)
    EXPECT_EQ(one.status, run_status_kind::finished) << one.name;
}

TEST_F(sweep_test, names_prepare_if_it_throws) {
  auto x = search(widths(2), {.searcher = grid_search(),
                              .max_concurrent = 1,
                              .prepare = [](const trial& one, run_config&) {
                                if (one.index == 1)
                                  throw std::runtime_error{"no port is free"};
                              }});
  EXPECT_EQ(message_of(x),
            "trial-0001: sweep_options::prepare threw: no port is free");
  ASSERT_EQ(x.trials.size(), 2u);
  EXPECT_EQ(x.trials[0].status, run_status_kind::finished);
  EXPECT_EQ(x.trials[1].status, run_status_kind::running) << "to be resumed";
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

namespace {

constexpr int no_pretended_gpus = 77;

/// Trials of two ranks. The first two wait for each other, then the rest; the
/// first rank of the first trial throws once. Each rank notes its GPUs.
void train_on_gpus(train_context& context, const settings& cfg) {
  fs::path notes{cfg.go};
  auto& facts = rank_access{context}.facts();
  auto name = "width " + std::to_string(cfg.width) + " rank "
              + std::to_string(context.rank());
  fs::ofstream out{notes / name, std::ios::app};
  for (auto gpu : facts.gpus)
    out << gpu << ' ';
  out << std::endl;
  auto others = cfg.width <= 2 ? std::pair{1, 2} : std::pair{3, 4};
  auto has_begun = [&notes](int width) {
    auto start = "width " + std::to_string(width) + " rank ";
    return fs::exists(notes / (start + '0'))
           && fs::exists(notes / (start + '1'));
  };
  wait_for(notes,
           [&] { return has_begun(others.first) && has_begun(others.second); });
  if (cfg.width == 1 && facts.attempt == 0 && context.rank() == 0)
    throw std::runtime_error{"as the test wants"};
  context.report({{"loss", 1.0}});
}

/// Two trials that wait for each other, and note the cores that they may use.
void train_on_cores(train_context& context, const settings& cfg) {
  fs::path notes{cfg.go};
  fs::ofstream out{notes / std::to_string(cfg.width)};
  for (auto core : available_cores())
    out << core << ' ';
  out.close();
  wait_for(notes,
           [&] { return fs::exists(notes / "1") && fs::exists(notes / "2"); });
  context.report({{"loss", 1.0}});
}

int sweep_on_gpus(const fs::path& storage) {
  if (!pretend_gpus(4, storage / "dev"))
    return no_pretended_gpus;
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  auto options = sweep_test::options_in(storage);
  options.scaling = {.num_workers = 2, .use_gpu = true};
  options.run.failure.max_failures = 1;
  settings cfg;
  cfg.go = (storage / "notes").string();
  auto x =
    sweep{data_parallel_trainer{train_on_gpus, cfg, options},
          sweep_test::widths(4),
          {.metric = "loss", .searcher = grid_search(), .max_concurrent = 4}}
      .fit();
  if (x.error)
    std::fprintf(stderr, "%s\n", x.error->message.c_str());
  return x.error ? 1 : 0;
}

} // namespace

TEST_F(sweep_test, trials_side_by_side_have_gpus_of_their_own) {
  for (auto name : {"notes", "dev"})
    fs::create_directory(storage_ / name);
  auto child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "sweep_test", "--on-gpus",
            storage_.path().c_str(), nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_pretended_gpus)
    GTEST_SKIP() << "no mounts for pretended GPUs";
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  auto gpus = [&](int width, int rank) {
    return bytes_of(
      storage_ / "notes"
      / ("width " + std::to_string(width) + " rank " + std::to_string(rank)));
  };
  EXPECT_EQ(gpus(1, 0), "0 \n0 \n") << "it keeps them when it restarts";
  EXPECT_EQ(gpus(1, 1), "1 \n1 \n");
  EXPECT_EQ(gpus(2, 0), "2 \n");
  EXPECT_EQ(gpus(2, 1), "3 \n");
  for (int rank : {0, 1})
    EXPECT_THAT((std::vector{gpus(3, rank), gpus(4, rank)}),
                testing::UnorderedElementsAre(std::to_string(rank) + " \n",
                                              std::to_string(rank + 2) + " \n"))
      << "they have those of the trials that have ended";
}

TEST_F(sweep_test, trials_side_by_side_have_the_cores_that_they_claim) {
  auto cores = available_cores();
  if (cores.size() < 2)
    GTEST_SKIP() << "this host has one core";
  auto notes = storage_ / "notes";
  fs::create_directory(notes);
  auto options = run();
  options.scaling.resources_per_worker.cpus = 1;
  settings cfg;
  cfg.go = notes.string();
  auto x = sweep{data_parallel_trainer{train_on_cores, cfg, options},
                 widths(2),
                 {.metric = "loss", .searcher = grid_search()}}
             .fit();
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(bytes_of(notes / "1"), std::to_string(cores[0]) + ' ');
  EXPECT_EQ(bytes_of(notes / "2"), std::to_string(cores[1]) + ' ');
}

int sweep_as_victim(const fs::path& storage, const std::string& go) {
  auto x =
    sweep{data_parallel_trainer{train, settings{.go = go},
                                sweep_test::options_in(storage)},
          sweep_test::widths(4),
          {.metric = "loss", .searcher = grid_search(), .max_concurrent = 1}}
      .fit();
  return x.stop_requested ? 42 : x.error ? 1 : 0;
}

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  if (argc > 3 && std::string{argv[1]} == "--victim")
    return troupe::internal::test::sweep_as_victim(argv[2], argv[3]);
  if (argc > 2 && std::string{argv[1]} == "--on-gpus")
    return troupe::internal::test::sweep_on_gpus(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
