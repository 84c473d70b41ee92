// What a tracker shows of a config whose fields have no names.

#include <gmock/gmock.h>

#include "tests/integration/tracking/mlflow_tree.hpp"

namespace troupe::internal::test {
namespace {

struct nameless_config {
  int steps = 1;
  double lr = 0.5;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(steps, lr);
  }
};

void report_steps(train_context& context, const nameless_config& cfg) {
  for (int step = 0; step < cfg.steps; ++step)
    context.report({{"lr", cfg.lr}});
}

} // namespace

TEST(config_without_names_test, is_one_notice_that_says_how_to_give_them_some) {
  mlflow_tree tree;
  auto result =
    data_parallel_trainer{report_steps,
                          nameless_config{},
                          {.scaling = {.num_workers = 1}, .run = tree.run}}
      .fit();
  ASSERT_FALSE(result.error) << result.error->message;
  std::vector<std::string> params;
  for (const auto& x : fs::recursive_directory_iterator{tree.path})
    if (x.path().parent_path().filename() == "params")
      params.push_back(x.path().filename().string() + ": "
                       + bytes_of(x.path()));
  EXPECT_THAT(params, testing::ElementsAre(testing::AllOf(
                        testing::StartsWith("notice: "),
                        testing::HasSubstr("TROUPE_FIELDS(...)"))));
}

} // namespace troupe::internal::test
