// Linear regression on y = 2x + noise, data-parallel: every rank has its own
// samples, and all ranks end with the same weight.

#include <cstdio>

#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "command_line.hpp"

constexpr auto usage = "linear_regression [--workers 2] [--storage runs] "
                       "[--name troupe_run-date] [--gpu]";

struct config {
  double lr = 0.1;
  int epochs = 60;
  int samples = 128; // per worker

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(lr), CEREAL_NVP(epochs), CEREAL_NVP(samples));
  }
};

void train(troupe::train_context& context, const config& cfg) {
  torch::manual_seed(context.rank());
  auto x = torch::rand({cfg.samples, 1}).to(troupe::device(context));
  auto y = 2 * x + 0.05 * torch::randn_like(x);
  auto model = troupe::prepare_model(context, torch::nn::Linear(1, 1));
  troupe::fused_sgd optimizer{model.parameters(),
                              {.lr = cfg.lr, .momentum = 0.9}};

  int first_epoch = 0;
  if (auto& last = context.checkpoint()) {
    auto saved = troupe::load_safetensors(last->path() / "state.safetensors");
    troupe::load_tensors(saved, model, {.prefix = "model."});
    optimizer.load_state(saved);
    first_epoch = static_cast<int>(saved.at("epoch").item<std::int64_t>()) + 1;
  }
  for (int epoch = first_epoch; epoch < cfg.epochs && !context.stop_requested();
       ++epoch) {
    optimizer.zero_grad();
    auto loss = torch::mse_loss(model.forward(x), y);
    loss.backward();
    optimizer.step();
    auto mean_loss = troupe::all_reduce_sum(context, loss.detach().clone())
                     / context.world_size();
    troupe::metrics values{{"epoch", epoch},
                           {"loss", mean_loss.item<double>()},
                           {"weight", model->weight.item<double>()},
                           {"bias", model->bias.item<double>()}};
    if (context.rank() != 0) {
      context.report(values);
      continue;
    }
    auto files = context.new_checkpoint();
    auto state = troupe::named_tensors(model, "model.");
    state.merge(optimizer.state());
    state["epoch"] = torch::tensor(epoch, torch::kLong);
    troupe::save_safetensors(files.path() / "state.safetensors", state);
    context.report(values, std::move(files));
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  command_line options{argc, argv, usage};
  troupe::torch_options run;
  run.scaling = options.scaling();
  run.run.storage_path = options.folder("--storage", "runs");
  if (auto name = options.text("--name", ""); !name.empty())
    run.run.name = name;
  run.run.checkpoint = {.num_to_keep = 1};
  options.finish();

  auto result = troupe::torch_trainer{train, config{}, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  std::printf(
    "y = %.2f x + %.2f, loss %.4f\n", result.metrics.at("weight").number(),
    result.metrics.at("bias").number(), result.metrics.at("loss").number());
}
