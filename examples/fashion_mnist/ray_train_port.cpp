// PyTorch's FashionMNIST script under Ray Train ("Getting started with PyTorch"
// in its guide), ported line by line. The numbers are the guide's own.

#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "resnet18.hpp"

struct config {
  int epochs = 10;
  int limit = 60'000; // training samples per epoch; the guide has all
  TROUPE_FIELDS(epochs, limit)

  void validate() const {
    if (epochs < 1 || limit < 1)
      throw std::invalid_argument{"epochs and limit are at least 1"};
  }
};

void train_func(troupe::train_context& context, const config& cfg) {
  // Model, loss, optimizer. [1] Prepare model.
  auto model = troupe::prepare_model(context, resnet18(1, 10));
  torch::nn::CrossEntropyLoss criterion;
  troupe::fused_adam optimizer{model.parameters(), {.lr = 0.001}};

  // Data, normalized to (x - 0.5) / 0.5. [2] Prepare data loader.
  auto train_loader = troupe::prepare_data_loader(
    context,
    troupe::first_samples{troupe::fashion_mnist{troupe::split::train},
                          cfg.limit},
    {.batch_size = 128, .shuffle = true});

  // Training, from the last checkpoint if the run was interrupted
  int epoch = 0;
  troupe::train_state state{
    {"model", model}, {"optimizer", optimizer}, {"epoch", epoch}};
  if (context.resume(state))
    ++epoch;
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    train_loader.set_epoch(epoch);
    torch::Tensor loss;
    for (auto& [images, labels] : train_loader) {
      auto outputs = model.forward(images);
      loss = criterion(outputs, labels);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    // [3] Report metrics and checkpoint.
    context.report({{"loss", loss.item<double>()}}, state);
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  // [4] Configure scaling and resource requirements; `--gpu` for GPUs.
  troupe::torch_options run{
    .scaling = {.num_workers = 2},
    .run = {.name = "ray_train_port",
            .storage_path = "runs",
            .if_finished = troupe::if_finished::number}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "The program of Ray Train's guide, ported."});
  // [5] Launch distributed training job.
  troupe::torch_trainer trainer{train_func, cfg, run};
  auto result = trainer.fit();
  return result.error ? 1 : 0;
}
