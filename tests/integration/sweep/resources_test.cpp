// What trials side by side have of the host.

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/integration/run/victim.hpp"
#include "tests/integration/sweep/sweep_fixture.hpp"
#include "tests/support/environment_guard.hpp"
#include "tests/support/pretended_gpus.hpp"
#include "troupe/runtime/process/usable_cores.hpp"
#include "troupe/trainers/sweep/sweep_plan.hpp"

namespace troupe::internal::test {

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
  for (auto core : own_cores().numbers)
    out << core << ' ';
  out.close();
  wait_for(notes,
           [&] { return fs::exists(notes / "1") && fs::exists(notes / "2"); });
  context.report({{"loss", 1.0}});
}

/// Two trials that wait for each other, and note how many threads they are to
/// use.
void train_with_threads(train_context& context, const settings& cfg) {
  fs::path notes{cfg.go};
  auto threads = std::getenv("OMP_NUM_THREADS");
  write_bytes(notes / std::to_string(cfg.width), threads ? threads : "unset");
  wait_for(notes,
           [&] { return fs::exists(notes / "1") && fs::exists(notes / "2"); });
  context.report({{"loss", 1.0}});
}

} // namespace

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
  // Either trial may be the first to begin.
  auto first = gpus(1, 0).starts_with('0') ? 0 : 2;
  auto line = [](int gpu) { return std::to_string(gpu) + " \n"; };
  for (int rank : {0, 1}) {
    auto its = line(first + rank);
    EXPECT_EQ(gpus(1, rank), its + its) << "it keeps them when it restarts";
    EXPECT_EQ(gpus(2, rank), line(2 - first + rank));
  }
  for (int rank : {0, 1})
    EXPECT_THAT((std::vector{gpus(3, rank), gpus(4, rank)}),
                testing::UnorderedElementsAre(std::to_string(rank) + " \n",
                                              std::to_string(rank + 2) + " \n"))
      << "they have those of the trials that have ended";
}

TEST_F(sweep_test, trials_side_by_side_have_the_cores_that_they_claim) {
  auto cores = own_cores().numbers;
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
  EXPECT_THAT((std::vector{bytes_of(notes / "1"), bytes_of(notes / "2")}),
              testing::UnorderedElementsAre(std::to_string(cores[0]) + ' ',
                                            std::to_string(cores[1]) + ' '));
}

TEST_F(sweep_test, trials_side_by_side_divide_the_threads_of_the_host) {
  auto cores = own_cores().count;
  if (cores < 2)
    GTEST_SKIP() << "this host has one core";
  environment_guard own{{{"OMP_NUM_THREADS", "1"}}};
  ::unsetenv("OMP_NUM_THREADS");
  auto notes = storage_ / "notes";
  fs::create_directory(notes);
  settings cfg;
  cfg.go = notes.string();
  auto start = [&](int last, const std::optional<int>& max_concurrent) {
    fs::remove_all(path());
    auto x = sweep{data_parallel_trainer{train_with_threads, cfg, run()},
                   widths(last),
                   {.metric = "loss",
                    .searcher = grid_search(),
                    .max_concurrent = max_concurrent}}
               .fit();
    EXPECT_EQ(message_of(x), "");
  };
  start(2, std::nullopt);
  EXPECT_EQ(bytes_of(notes / "1"), std::to_string(cores / 2));
  EXPECT_EQ(bytes_of(notes / "2"), std::to_string(cores / 2));
  start(1, 1);
  EXPECT_EQ(bytes_of(notes / "1"), std::to_string(cores)) << "it is alone";
}

TEST_F(sweep_test, trials_at_once_have_cores_for_all_their_ranks) {
  auto cores = own_cores().count;
  if (cores < 2)
    GTEST_SKIP() << "this host has one core";
  search_space space;
  sweep_options options;
  auto at_once = [&](const scaling_config& scaling) {
    run_request request;
    request.scaling = scaling;
    return sweep_plan{request, space, options}.at_once();
  };
  EXPECT_EQ(at_once({.workers_per_host = 1}), cores);
  EXPECT_EQ(at_once({.workers_per_host = cores}), 1);
  options.searcher = grid_search();
  space = widths(3);
  run_request request;
  EXPECT_EQ((sweep_plan{request, space, options}.trials()), 3u);
  options.trials = 2;
  EXPECT_EQ((sweep_plan{request, space, options}.trials()), 2u);
}

TEST_F(sweep_test, refuses_ranks_of_a_host_that_claim_too_many_cores) {
  auto options = run();
  options.scaling.workers_per_host = 2;
  options.scaling.resources_per_worker.cpus = own_cores().count;
  auto x = sweep{data_parallel_trainer{train, settings{}, options},
                 widths(2),
                 {.metric = "loss", .searcher = grid_search()}}
             .fit();
  ASSERT_TRUE(x.error);
  EXPECT_EQ(x.error->code, ec::invalid_config);
  EXPECT_TRUE(x.trials.empty()) << "no trial begins";
}

} // namespace troupe::internal::test
