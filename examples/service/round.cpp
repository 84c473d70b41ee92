#include "round.hpp"

#include <algorithm>

#include <torch/torch.h>

#include <troupe/torch.hpp>

namespace {

/// The samples of all shards, in memory.
class shard_samples {
public:
  explicit shard_samples(const std::vector<troupe::fs::path>& shards) {
    for (auto& shard : shards) {
      troupe::fs::ifstream file{shard, std::ios::binary};
      for (sample x; file.read(reinterpret_cast<char*>(&x), sizeof x);)
        samples_.push_back(x);
    }
  }

  std::int64_t size() const {
    return static_cast<std::int64_t>(samples_.size());
  }

  std::pair<torch::Tensor, torch::Tensor>
  get_batch(std::span<const std::int64_t> indices) const {
    auto n = static_cast<std::int64_t>(indices.size());
    auto at = torch::empty({n, 4});
    auto values = torch::empty({n, 1});
    for (std::int64_t i = 0; i < n; ++i) {
      auto& x = samples_[indices[i]];
      std::copy(x.at.begin(), x.at.end(), at.data_ptr<float>() + 4 * i);
      values.data_ptr<float>()[i] = x.value;
    }
    return {at, values};
  }

private:
  std::vector<sample> samples_;
};

/// Four numbers to one.
torch::nn::Sequential make_model() {
  using torch::nn::Linear, torch::nn::ReLU;
  return torch::nn::Sequential{Linear{4, 64}, ReLU{}, Linear{64, 64}, ReLU{},
                               Linear{64, 1}};
}

/// The loop of every rank.
void train_round(troupe::train_context& context, const round_config& cfg) {
  torch::manual_seed(1);
  auto model = troupe::prepare_model(context, make_model());
  troupe::fused_adam optimizer{model.parameters(), {.lr = cfg.lr}};
  auto loader = troupe::prepare_data_loader(
    context, shard_samples{cfg.shards},
    {.batch_size = cfg.batch_size, .shuffle = true});

  int epoch = 0;
  troupe::train_state state{
    {"model", model}, {"optimizer", optimizer}, {"epoch", epoch}};
  if (context.resume(state)) {
    ++epoch; // a rank has died in this round
  } else if (cfg.from) {
    auto last = troupe::checkpoint::from_directory(*cfg.from);
    last.load("model", model);
    last.load("optimizer", optimizer);
  }
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    loader.set_epoch(epoch);
    troupe::mean_metric mean_loss;
    for (auto& [at, values] : loader) {
      optimizer.zero_grad();
      auto loss = torch::mse_loss(model.forward(at), values);
      loss.backward();
      optimizer.step();
      mean_loss.update(loss.detach());
    }
    context.report({{"epoch", epoch}, {"loss", mean_loss.value()}}, state);
  }
}

} // namespace

struct model::layers {
  torch::nn::Sequential all = make_model();
};

model::model(const troupe::checkpoint& files)
  : layers_(std::make_unique<layers>()) {
  files.load("model", layers_->all);
}

model::~model() = default;

float model::predict(const features& at) const {
  torch::InferenceMode no_gradients;
  auto x = torch::tensor(at::ArrayRef<float>{at.data(), at.size()});
  return layers_->all->forward(x).item<float>();
}

bool has_gpu() {
  return torch::cuda::is_available();
}

troupe::expected<troupe::run_handle>
start_round(caf::actor_system& system, const round_config& cfg,
            const troupe::train_options& options) {
  return troupe::torch_trainer{
    train_round, cfg, {.scaling = options.scaling, .run = options.run}}
    .start(system);
}
