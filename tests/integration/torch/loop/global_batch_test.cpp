// A global batch that stays when the number of ranks changes.

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

namespace {

/// Without layers whose result depends on the other samples of a rank's batch.
struct linear_module : training_module<batch> {
  linear_module() {
    torch::NoGradGuard no_grad;
    for (auto& x : layer->parameters())
      x.fill_(0.25);
  }

  at::Tensor training_step(batch& x, std::int64_t) override {
    return torch::mse_loss(layer(x.first), x.second);
  }

  loop_optimizer configure_optimizers() override {
    return std::make_shared<fused_sgd>(
      parameters(), sgd_options{.lr = 0.05, .momentum = 0.9});
  }

  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 1));
};

class global_batch_loop_test : public loop_test,
                               public ::testing::WithParamInterface<int> {
protected:
  /// Trains two epochs of four steps with *workers* ranks.
  tensor_map weights(int workers, const std::string& name) {
    tensor_map result;
    auto x = run(
      workers,
      [&](train_context& context) {
        auto split = split_global_batch(context, 12, 4);
        epoch_loop loop{
          context,
          {.max_epochs = 2,
           .accumulate_grad_batches = split.accumulate_grad_batches}};
        auto module = std::make_shared<linear_module>();
        loop.fit(module, prepare_data_loader(
                           context, curve{48},
                           {.batch_size = split.batch_size, .shuffle = true}));
        EXPECT_EQ(loop.global_step(), 8);
        if (context.rank() == 0)
          for (auto& [key, value] : named_tensors(*module))
            result[key] = value.detach().clone();
      },
      name);
    EXPECT_FALSE(x.error) << x.error->message;
    return result;
  }
};

TEST_P(global_batch_loop_test, each_step_takes_the_same_samples) {
  auto expected = weights(1, "one");
  auto found = weights(GetParam(), "more");
  ASSERT_EQ(expected.size(), 2);
  for (auto& [name, value] : expected)
    EXPECT_TRUE(torch::allclose(found.at(name), value, 1e-5, 1e-6)) << name;
}

INSTANTIATE_TEST_SUITE_P(ranks, global_batch_loop_test,
                         ::testing::Values(2, 3, 4, 6));

} // namespace

} // namespace troupe::internal::test
