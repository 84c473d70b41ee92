#include <stdexcept>
#include <string>

#include <unistd.h>

#include <gtest/gtest.h>
#include <troupe/trackers.hpp>

#include "tests/integration/run/victim.hpp"
#include "tests/integration/sweep/sweep_fixture.hpp"
#include "tests/support/small_disk.hpp"

namespace troupe::internal::test {

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

namespace {

/// With `tracker_down` as *go*, trials have a tracker whose service is not
/// there, and the sweep shows its progress.
int sweep_as_victim(const fs::path& storage, std::string go) {
  auto options = sweep_test::options_in(storage);
  if (go == "tracker_down") {
    go.clear();
    options.run.quiet = false;
    options.run.trackers = {
      mlflow_tracker({.tracking_uri = "http://127.0.0.1:1"},
                     {.finish_timeout = std::chrono::hours{1}})};
  }
  auto x =
    sweep{data_parallel_trainer{train, settings{.go = go}, options},
          sweep_test::widths(4),
          {.metric = "loss", .searcher = grid_search(), .max_concurrent = 1}}
      .fit();
  return x.stop_requested ? 42 : x.error ? 1 : 0;
}

} // namespace

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
