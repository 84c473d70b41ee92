// A real run with a restart, and its page in Chromium.

#include <fstream>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <troupe/train.hpp>

#include "tests/peers/report_page/drawn_chart.hpp"
#include "tests/support/chromium.hpp"

namespace troupe::internal::test {

namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct loop_config {
  double lr = 0.5;
  int steps = 10;

  TROUPE_FIELDS(lr, steps)
};

/// A checkpoint at every other step; rank 1 falls in the first attempt.
void falling_loop(train_context& context, const loop_config& config) {
  int step = 0;
  if (auto& last = context.checkpoint())
    std::ifstream{(last->path() / "step.txt").string()} >> step;
  for (; step < config.steps; ++step) {
    std::printf("rank %d at step %d\n", context.rank(), step);
    if (context.rank() == 1 && context.attempt() == 0 && step == 5)
      throw std::runtime_error{"rank 1 fell"};
    metrics values{{"loss", 1.0 / (step + 1) + 0.25 * context.rank()}};
    if (context.rank() != 0 || step % 2 == 0) {
      context.report(values);
      continue;
    }
    auto files = context.new_checkpoint();
    std::ofstream{(files.path() / "step.txt").string()} << step + 1;
    context.report(values, std::move(files));
  }
}

} // namespace

TEST(trained_run_test, a_run_leaves_its_page_with_restart_and_checkpoints) {
  TROUPE_NEEDS_CHROMIUM();
  temporary_folder storage;
  train_options options{.scaling = {.num_workers = 2}};
  options.run.name = "falling";
  options.run.storage_path = storage.path();
  options.run.quiet = true;
  options.run.failure.max_failures = 1;
  auto outcome =
    data_parallel_trainer{falling_loop, loop_config{}, options}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  ASSERT_EQ(outcome.attempts, 2u);
  auto history = outcome.metrics_history();
  ASSERT_TRUE(history);

  auto page = open_in_chromium(
    outcome.path / "report.html",
    {.height = 2600,
     .screenshot = fs::path{TROUPE_SCREENSHOTS} / "trained.png"});
  EXPECT_EQ(page.console, "");
  page.dom = without_scripts(std::move(page.dom));
  drawn_chart chart{page.dom, "loss"};
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), history->size());
  std::size_t checkpoints = 0;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    auto& row = (*history)[i];
    auto mean =
      (row.values[0].number("loss") + row.values[1].number("loss")) / 2;
    EXPECT_NEAR(curve[i].x, chart.x_of(static_cast<double>(row.index)), 0.35);
    EXPECT_NEAR(curve[i].y, chart.y_of(mean), 0.35);
    checkpoints += row.checkpoint.empty() ? 0 : 1;
  }
  EXPECT_THAT(chart.bands(), SizeIs(1));
  EXPECT_THAT(chart.marks("restart"), SizeIs(1));
  EXPECT_THAT(chart.marks("checkpoint best"), SizeIs(1));
  EXPECT_EQ(chart.marks("checkpoint").size() + 1, checkpoints);

  drawn_chart times{page.dom, "Step time of each rank"};
  ASSERT_THAT(times.curves(), SizeIs(2));
  EXPECT_EQ(times.curves()[0].size(), history->size());

  EXPECT_THAT(page.dom, HasSubstr("data-status=\"finished\""));
  EXPECT_THAT(page.dom, HasSubstr("rank 1 fell"));
  EXPECT_THAT(page.dom, HasSubstr("rank 0 at step 9\n"));
  EXPECT_THAT(page.dom, HasSubstr("<th scope=\"row\">lr</th><td>0.5</td>"));
}

} // namespace troupe::internal::test
