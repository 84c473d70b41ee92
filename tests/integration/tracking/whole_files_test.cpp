// The files that every run has, after a run that reported faster than they can
// be written.

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include <troupe/train.hpp>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {
namespace {

constexpr int names = 500;
constexpr int reports = 100;

struct wide_config {
  template <class Archive>
  void serialize(Archive&) {}
};

void wide_loop(train_context& context, const wide_config&) {
  metrics values;
  for (int i = 0; i < reports; ++i) {
    for (int name = 0; name < names; ++name)
      values["layer_" + std::to_string(name) + "/norm"] = i + 0.1 * name;
    context.report(values, {.barrier = false});
  }
}

} // namespace

TEST(whole_files_test, the_table_and_the_page_are_complete_when_fit_returns) {
  temporary_folder folder;
  run_config run;
  run.name = "run";
  run.storage_path = folder.path();
  run.quiet = true;
  auto result = data_parallel_trainer{
    wide_loop,
    wide_config{},
    {.scaling = {.num_workers = 4},
     .run = run}}.fit();
  ASSERT_FALSE(result.error) << result.error->message;
  auto table = bytes_of(folder.path() / "run/metrics.csv");
  EXPECT_EQ(std::ranges::count(table, '\n'), 1 + reports);
  auto page = bytes_of(folder.path() / "run/report.html");
  EXPECT_NE(page.find("</html>"), page.npos);
  EXPECT_NE(page.find("layer_0/norm"), page.npos);
  // Written after the run's end: it says how it ended, and has no less.
  EXPECT_NE(page.find("<p>finished: " + std::to_string(reports)
                      + " reports of 4 ranks,"),
            page.npos);
}

} // namespace troupe::internal::test
