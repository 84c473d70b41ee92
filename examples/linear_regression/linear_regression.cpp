// Linear regression on y = 2x + noise, data-parallel: every rank has its own
// samples, and all ranks end with the same weight.

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>

struct config {
  double lr = 0.1;
  int epochs = 60;
  int samples = 128; // per worker

  TROUPE_FIELDS(lr, epochs, samples)

  void validate() const {
    if (epochs < 1 || samples < 1 || samples > 10'000'000
        || !(lr > 0 && std::isfinite(lr)))
      throw std::invalid_argument{
        "epochs is at least 1, samples is 1 to 10000000, and lr is a finite "
        "number above 0"};
  }
};

void train(troupe::train_context& context, const config& cfg) {
  torch::manual_seed(context.rank());
  auto x = torch::rand({cfg.samples, 1}).to(troupe::device(context));
  auto y = 2 * x + 0.05 * torch::randn_like(x);
  auto model = troupe::prepare_model(context, torch::nn::Linear(1, 1));
  troupe::fused_sgd optimizer{model.parameters(),
                              {.lr = cfg.lr, .momentum = 0.9}};

  int epoch = 0;
  troupe::train_state state{
    {"model", model}, {"optimizer", optimizer}, {"epoch", epoch}};
  if (context.resume(state))
    ++epoch; // the saved one is done
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    optimizer.zero_grad();
    auto loss = torch::mse_loss(model.forward(x), y);
    loss.backward();
    optimizer.step();
    auto mean_loss = troupe::all_reduce(context, loss.detach().clone(),
                                        troupe::reduce_op::mean);
    troupe::metrics values{{"epoch", epoch},
                           {"loss", mean_loss.item<double>()},
                           {"weight", model->weight.item<double>()},
                           {"bias", model->bias.item<double>()}};
    context.report(values, state);
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{
    .scaling = {.num_workers = 2},
    .run = {.storage_path = "runs", .checkpoint = {.num_to_keep = 1}}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "The smallest model, data-parallel."});
  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  std::printf("y = %.2f x + %.2f, loss %.4f\n", result.metrics.number("weight"),
              result.metrics.number("bias"), result.metrics.number("loss"));
}
