// LibTorch's own optimizers with a prepared model, between rank processes.

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

namespace {

enum class cleared { by_optimizer, by_model, by_optimizer_without_views };

void train_by_libtorch(train_context& context, const cleared& how) {
  data_parallel_options options;
  options.gradient_as_bucket_view = how != cleared::by_optimizer_without_views;
  auto model = prepare_model(context, torch::nn::Linear{2, 1}, options);
  torch::optim::SGD optimizer{model.parameters(),
                              torch::optim::SGDOptions{0.1}};
  for (int step = 0; step < 3; ++step) {
    if (how == cleared::by_model)
      model.zero_grad();
    else
      optimizer.zero_grad();
    model.forward(at::ones({3, 2})).sum().backward();
    optimizer.step();
    context.report({{"step", step}});
  }
}

result fit_with(cleared how, int ranks) {
  temporary_folder storage;
  torch_options x;
  x.scaling = {.num_workers = ranks};
  x.run.name = "run";
  x.run.storage_path = storage.path();
  x.run.quiet = true;
  return torch_trainer{train_by_libtorch, how, x}.fit();
}

} // namespace

TEST(libtorch_optimizer_test, trains_if_the_model_clears_the_gradients) {
  for (auto how : {cleared::by_model, cleared::by_optimizer_without_views}) {
    auto x = fit_with(how, 2);
    EXPECT_FALSE(x.error) << x.error->message;
  }
}

TEST(libtorch_optimizer_test, says_what_clears_gradients_that_are_views) {
  EXPECT_FALSE(fit_with(cleared::by_optimizer, 1).error);
  auto x = fit_with(cleared::by_optimizer, 2);
  ASSERT_TRUE(x.error);
  EXPECT_THAT(x.error->message, HasSubstr("call zero_grad() of the model"));
}

} // namespace troupe::internal::test
