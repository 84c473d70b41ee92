// LibTorch's own optimizers with a prepared model, between rank processes.

#include <gmock/gmock.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

namespace {

struct libtorch_plan {
  bool model_clears = false; ///< Not the optimizer.
  bool views = true;
  bool static_graph = false;

  TROUPE_FIELDS(model_clears, views, static_graph)
};

/// The weights start at 1, and each step lowers them by 0.1 * 3.
void train_by_libtorch(train_context& context, const libtorch_plan& plan) {
  data_parallel_options options;
  options.gradient_as_bucket_view = plan.views;
  options.static_graph = plan.static_graph;
  torch::nn::Linear layer{2, 1};
  torch::nn::init::ones_(layer->weight);
  auto model = prepare_model(context, layer, options);
  torch::optim::SGD optimizer{model.parameters(),
                              torch::optim::SGDOptions{0.1}};
  for (int step = 0; step < 3; ++step) {
    if (plan.model_clears)
      model.zero_grad();
    else
      optimizer.zero_grad();
    model.forward(at::ones({3, 2})).sum().backward();
    optimizer.step();
    context.report(
      {{"step", step}, {"weight", layer->weight[0][0].item<double>()}});
  }
}

result fit_with(const libtorch_plan& plan, int ranks) {
  temporary_folder storage;
  torch_options x;
  x.scaling = {.num_workers = ranks};
  x.run.name = "run";
  x.run.storage_path = storage.path();
  x.run.quiet = true;
  return torch_trainer{train_by_libtorch, plan, x}.fit();
}

} // namespace

TEST(libtorch_optimizer_test, trains_whoever_clears_the_gradients) {
  for (auto ranks : {1, 2})
    for (auto plan :
         {libtorch_plan{}, libtorch_plan{.model_clears = true},
          libtorch_plan{.views = false}, libtorch_plan{.static_graph = true}}) {
      auto x = fit_with(plan, ranks);
      ASSERT_FALSE(x.error) << x.error->message;
      EXPECT_NEAR(x.metrics.number("weight"), 0.1, 1e-5);
    }
}

} // namespace troupe::internal::test
