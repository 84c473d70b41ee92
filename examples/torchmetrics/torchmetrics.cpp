// Metrics over all ranks while a linear model learns y from four features: the
// mean validation loss of the batches, MAPE and R2 over the validation samples
// of all ranks, and a checkpoint for each epoch that Python can read.

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>

struct config {
  double lr = 0.2;
  int epochs = 5;
  int samples = 100; // per worker, of each kind
  int batch_size = 10;

  TROUPE_FIELDS(lr, epochs, samples, batch_size)

  void validate() const {
    if (epochs < 1 || samples < 1 || samples > 10'000'000 || batch_size < 1
        || batch_size > samples || !(lr > 0 && std::isfinite(lr)))
      throw std::invalid_argument{
        "epochs is at least 1, samples is 1 to 10000000, batch_size is 1 to "
        "samples, and lr is a finite number above 0"};
  }
};

torch::Tensor targets(const torch::Tensor& x) {
  auto weights = torch::tensor({1.0f, -2.0f, 3.0f, 0.5f}, x.options());
  auto y = (x * weights).sum(1, true) + 4;
  return y + 0.1 * torch::randn_like(y);
}

void train(troupe::train_context& context, const config& cfg) {
  torch::manual_seed(context.rank());
  auto x = torch::randn({cfg.samples, 4}).to(troupe::device(context));
  auto x_valid = torch::randn_like(x);
  auto y = targets(x), y_valid = targets(x_valid);
  auto model = troupe::prepare_model(context, torch::nn::Linear(4, 1));
  troupe::fused_adam optimizer{model.parameters(), {.lr = cfg.lr}};

  troupe::mean_metric mean_valid_loss;
  troupe::mean_absolute_percentage_error mape;
  troupe::r2_score r2;

  int epoch = 0;
  troupe::train_state state{
    {"model", model}, {"optimizer", optimizer}, {"epoch", epoch}};
  if (context.resume(state))
    ++epoch; // the saved one is done
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    for (int i = 0; i < cfg.samples; i += cfg.batch_size) {
      optimizer.zero_grad();
      auto predicted = model.forward(x.slice(0, i, i + cfg.batch_size));
      torch::mse_loss(predicted, y.slice(0, i, i + cfg.batch_size)).backward();
      optimizer.step();
    }
    torch::Tensor valid_loss; // of this rank's last batch
    for (int i = 0; i < cfg.samples; i += cfg.batch_size) {
      torch::NoGradGuard no_grad;
      auto predicted = model.forward(x_valid.slice(0, i, i + cfg.batch_size));
      auto target = y_valid.slice(0, i, i + cfg.batch_size);
      valid_loss = torch::mse_loss(predicted, target);
      mean_valid_loss.update(valid_loss);
      mape.update(predicted, target);
      r2.update(predicted, target);
    }
    // Every rank computes, and every rank gets the value over all ranks.
    troupe::metrics values{{"epoch", epoch},
                           {"valid_loss", valid_loss.item<double>()},
                           {"mean_valid_loss", mean_valid_loss.value()},
                           {"mape", mape.value()},
                           {"r2", r2.value()}};
    context.report(values, state);
    mean_valid_loss.reset();
    mape.reset();
    r2.reset();
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{.scaling = {.num_workers = 2},
                            .run = {.storage_path = "runs"}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "Metrics over the samples of all ranks."});
  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  std::printf("valid loss %.4f on rank 0, %.4f on all; MAPE %.4f, R2 %.4f\n",
              result.metrics.number("valid_loss"),
              result.metrics.number("mean_valid_loss"),
              result.metrics.number("mape"), result.metrics.number("r2"));
}
