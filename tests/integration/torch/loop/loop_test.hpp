#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

using batch = std::pair<at::Tensor, at::Tensor>;

/// *size* samples of a function of three numbers.
struct curve {
  std::int64_t count = 20;

  std::int64_t size() const { return count; }
  batch get(std::size_t index) const {
    auto x =
      torch::arange(3, torch::kFloat) * 0.1 + 0.05 * static_cast<double>(index);
    return {x, x.sin().sum(0, /*keepdim=*/true)};
  }
};

/// Weights are a function of nothing: the generator is shared by threads.
struct small_net : torch::nn::Module {
  explicit small_net(double dropout = 0)
    : norm(register_module("norm", torch::nn::BatchNorm1d(6))),
      dropout(register_module("dropout", torch::nn::Dropout(dropout))) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    torch::NoGradGuard no_grad;
    for (auto* layer : {&first, &second})
      for (auto& x : (*layer)->parameters())
        x.uniform_(-0.5, 0.5, generator);
  }

  at::Tensor forward(const at::Tensor& x) {
    return second(dropout(norm(first(x)).relu()));
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 6));
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout dropout;
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 1));
};

inline double warm_up(std::int64_t epoch) {
  return 1.0 / static_cast<double>(1 + epoch);
}

/// `small_net` with its loss, logged per step and epoch.
struct curve_module : training_module<batch> {
  explicit curve_module(double dropout = 0)
    : net(register_module("net", std::make_shared<small_net>(dropout))) {}

  at::Tensor training_step(batch& x, std::int64_t) override {
    auto loss = torch::mse_loss(net->forward(x.first), x.second);
    log("loss", loss, {.on_epoch = true, .sync_dist = true});
    return loss;
  }

  void validation_step(batch& x, std::int64_t) override {
    log("val_loss", torch::mse_loss(net->forward(x.first), x.second),
        {.sync_dist = true});
    log("val_samples", x.second.size(0), {.batch_size = 1});
  }

  loop_optimizer configure_optimizers() override {
    return {std::make_shared<fused_sgd>(
              parameters(), sgd_options{.lr = 0.05, .momentum = 0.9}),
            {.factor = warm_up}};
  }

  std::shared_ptr<small_net> net;
};

/// Runs of loops in a storage folder of their own.
class loop_test : public ::testing::Test {
protected:
  using body_type = std::function<void(train_context&)>;

  torch_options options(int workers, const std::string& name = "run") const {
    torch_options x;
    x.scaling.num_workers = workers;
    x.run.name = name;
    x.run.storage_path = storage_.path();
    x.run.quiet = true;
    return x;
  }

  /// Runs *body* on *workers* threads; 0 and 1: on this one.
  result run(int workers, body_type body, const std::string& name = "run") {
    auto x = options(workers < 2 ? 0 : workers, name);
    x.scaling.where = placement::in_process;
    return torch_trainer{in_process_loop{std::move(body)}, std::move(x)}.fit();
  }

  /// What rank 0 says when *body* fails in a world of one.
  std::string failure_of(body_type body) {
    auto x = run(0, std::move(body));
    return x.error ? x.error->message : "it did not fail";
  }

  /// Expects *broken*, which was restarted once, to have reported and saved
  /// what *whole* did.
  static void expect_same(const result& whole, const result& broken) {
    ASSERT_FALSE(whole.error) << whole.error->message;
    ASSERT_FALSE(broken.error) << broken.error->message;
    ASSERT_EQ(broken.attempts, 2u);
    auto expected = whole.metrics_history();
    auto found = broken.metrics_history();
    ASSERT_TRUE(expected && found);
    ASSERT_EQ(found->size(), expected->size());
    for (std::size_t i = 0; i < found->size(); ++i)
      EXPECT_EQ((*found)[i].values, (*expected)[i].values) << i;
    ASSERT_TRUE(whole.checkpoint && broken.checkpoint);
    for (auto file : {"model.safetensors", "loop.safetensors", "loop.json",
                      "rank_0.safetensors", "rank_1.safetensors"})
      EXPECT_EQ(bytes_of(broken.checkpoint->path() / file),
                bytes_of(whole.checkpoint->path() / file))
        << file;
  }

  temporary_folder storage_;
};

} // namespace troupe::internal::test
