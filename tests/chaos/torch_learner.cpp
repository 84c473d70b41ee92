// A linear layer whose gradients are averaged over shared memory, between hosts
// over connections of the leaders. Its weights must equal those of an
// undisturbed run, to the last bit.

#include <cstring>

#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "trainee.hpp"

namespace troupe::chaos {

namespace {

constexpr int inputs = 6;
constexpr int outputs = 4;

/// Its gradients are whole multiples whose sum over *world* ranks is exact: a
/// ring adds in an order that depends on the bucket, and buckets change after
/// the first step of an attempt.
torch::nn::Linear layer_of(const plan& x, int world) {
  torch::manual_seed(x.seed);
  torch::nn::Linear layer(inputs, outputs);
  for (auto& weights : layer->parameters())
    weights.register_hook([world](const torch::Tensor& gradient) {
      return (gradient * (65536.0 / world)).round() * world / 65536;
    });
  return layer;
}

class torch_learner : public learner {
public:
  torch_learner(train_context& context, const plan& x)
    : rank_(context.rank()), layer_(layer_of(x, context.world_size())),
      model_(prepare_model(context, layer_)),
      optimizer_(layer_->parameters(), {.lr = 0.1}) {}

  std::uint64_t train(const model&, std::uint64_t data) override {
    torch::manual_seed(mixed(data + static_cast<std::uint64_t>(rank_)) >> 1);
    auto x = torch::rand({8, inputs});
    auto y = torch::rand({8, outputs});
    optimizer_.zero_grad();
    torch::mse_loss(model_.forward(x), y).backward();
    optimizer_.step();
    return sum_of(weights());
  }

  std::string weights() const override {
    std::string result;
    for (auto& x : layer_->parameters())
      result.append(static_cast<const char*>(x.data_ptr()), x.nbytes());
    return result;
  }

  void load(const std::string& bytes) override {
    auto from = bytes.data();
    for (auto& x : layer_->parameters()) {
      std::memcpy(x.data_ptr(), from, x.nbytes());
      from += x.nbytes();
    }
  }

private:
  using prepared = decltype(prepare_model(std::declval<train_context&>(),
                                          torch::nn::Linear(inputs, outputs)));

  int rank_;
  torch::nn::Linear layer_;
  prepared model_;
  fused_sgd optimizer_;
};

} // namespace

std::unique_ptr<learner> make_learner(train_context& context, const plan& x) {
  return std::make_unique<torch_learner>(context, x);
}

result fit(const plan& x, train_options options) {
  torch_options all{std::move(options.scaling), std::move(options.run), {}};
  all.torch.backend = x.on_hosts ? backend::hierarchical : backend::local;
  return torch_trainer{loop, x, std::move(all)}.fit();
}

} // namespace troupe::chaos
