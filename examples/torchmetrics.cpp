// Metrics over all ranks while a linear model learns y from four features: the
// mean loss of the batches, and MAPE and R2 over the validation samples of all
// ranks.
//
//   torchmetrics [workers [storage folder]]

#include <cstdio>
#include <cstdlib>

#include <torch/torch.h>

#include <troupe/torch.hpp>

struct config {
  double lr = 0.2;
  int epochs = 5;
  int samples = 100; // per worker, of each kind
  int batch_size = 10;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(lr, epochs, samples, batch_size);
  }
};

torch::Tensor targets(const torch::Tensor& x) {
  return (x * torch::tensor({1.0f, -2.0f, 3.0f, 0.5f})).sum(1, true) + 4
         + 0.1 * torch::randn({x.size(0), 1});
}

void train(troupe::train_context& context, const config& cfg) {
  torch::manual_seed(context.rank());
  auto x = torch::randn({cfg.samples, 4}), x_valid = torch::randn_like(x);
  auto y = targets(x), y_valid = targets(x_valid);
  auto model = troupe::prepare_model(context, torch::nn::Linear(4, 1));
  troupe::fused_adam optimizer{model.parameters(), {.lr = cfg.lr}};

  troupe::mean_metric loss_of_batches;
  troupe::mean_absolute_percentage_error mape;
  troupe::r2_score r2;
  for (int epoch = 0; epoch < cfg.epochs; ++epoch) {
    for (int i = 0; i < cfg.samples; i += cfg.batch_size) {
      optimizer.zero_grad();
      auto loss =
        torch::mse_loss(model.forward(x.slice(0, i, i + cfg.batch_size)),
                        y.slice(0, i, i + cfg.batch_size));
      loss.backward();
      optimizer.step();
      loss_of_batches.update(loss);
    }
    {
      torch::NoGradGuard no_grad;
      auto predicted = model.forward(x_valid);
      mape.update(predicted, y_valid);
      r2.update(predicted, y_valid);
    }
    // Every rank computes, and every rank has the value over all ranks.
    context.report({{"epoch", epoch},
                    {"train/loss", loss_of_batches.value()},
                    {"val/mape", mape.value()},
                    {"val/r2", r2.value()}});
    loss_of_batches.reset();
    mape.reset();
    r2.reset();
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_trainer trainer{
    train,
    config{},
    {.scaling = {.num_workers = argc > 1 ? std::atoi(argv[1]) : 2},
     .run = {.storage_path = argc > 2 ? argv[2] : "runs"}}};
  auto result = trainer.fit();
  if (result.error) {
    std::fprintf(stderr, "%s\n", result.error->message.c_str());
    return 1;
  }
  std::printf("loss %.4f, MAPE %.4f, R2 %.4f\n",
              result.metrics.at("train/loss").number(),
              result.metrics.at("val/mape").number(),
              result.metrics.at("val/r2").number());
}
