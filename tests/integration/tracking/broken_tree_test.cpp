// A whole run whose tracker finds something in its folder that cannot be read.

#include <thread>

#include <gmock/gmock.h>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/tracking/mlflow_tree.hpp"

namespace troupe::internal::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// The folder of metrics of the only run in *tree*; empty as long as there is
/// none.
fs::path metrics_in(const fs::path& tree) {
  boost::system::error_code failed;
  for (fs::recursive_directory_iterator i{tree, failed}, end;
       !failed && i != end; i.increment(failed))
    if (i->path().filename() == "metrics")
      return i->path();
  return {};
}

/// Reports "late" once its file cannot be written any more.
void count(train_context& context, const std::string& tree) {
  for (int i = 0; i < 10; ++i) {
    while (i == 5 && !fs::is_symlink(metrics_in(tree) / "late"))
      std::this_thread::yield();
    context.report({{i < 5 ? "early" : "late", i}});
  }
}

} // namespace

TEST(broken_tree_test, a_loop_of_links_fails_the_tracker_and_not_the_run) {
  mlflow_tree tree{{.failing_timeout = std::chrono::milliseconds{200},
                    .retry = {.first = std::chrono::milliseconds{10},
                              .longest = std::chrono::milliseconds{50}}}};
  tree.run.callbacks = {on_report(2, [&] {
    auto metrics = metrics_in(tree.path);
    for (; metrics.empty(); metrics = metrics_in(tree.path))
      std::this_thread::yield();
    fs::create_symlink("late", metrics / "late");
  })};
  auto result =
    data_parallel_trainer{count,
                          tree.path.string(),
                          {.scaling = {.num_workers = 2}, .run = tree.run}}
      .fit();
  ASSERT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.status, run_status_kind::finished);
  EXPECT_THAT(
    result.unsent,
    ElementsAre(AllOf(StartsWith("tracker mlflow: "), HasSubstr("are unsent"),
                      HasSubstr((metrics_in(tree.path) / "late").string()))));
  EXPECT_EQ(result.metrics_history()->size(), 10u);
}

} // namespace troupe::internal::test
