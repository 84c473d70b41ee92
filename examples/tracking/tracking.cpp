// A small network on FashionMNIST, shown in the tracker of your choice.
// Credentials come from the environment, as for each tracker's own client.

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>
#include <troupe/trackers.hpp>

enum class tracker { csv, tensorboard, mlflow, wandb, comet, prometheus };

struct config {
  ::tracker tracker = ::tracker::csv; // metrics.csv comes with every run
  troupe::fs::path data = troupe::fashion_mnist::default_root();
  double lr = 1e-3;
  int epochs = 2;
  int batch_size = 64; // per worker
  int limit = 6400;    // training samples per epoch; 0: all

  TROUPE_FIELDS(tracker, data, lr, epochs, batch_size, limit)

  void validate() const {
    if (epochs < 1 || batch_size < 1 || limit < 0
        || !(lr > 0 && std::isfinite(lr)))
      throw std::invalid_argument{
        "epochs and batch_size are at least 1, limit is at least 0, and lr is "
        "a finite number above 0"};
  }
};

/// The first image of a batch for a tracker.
void log_sample(troupe::tracking_handle& tracker, const torch::Tensor& images) {
  auto pixels =
    images[0].mul(255).clamp(0, 255).to(torch::kByte).cpu().contiguous();
  tracker.log_image("sample",
                    {.pixels = {pixels.data_ptr<std::uint8_t>(),
                                static_cast<std::size_t>(pixels.numel())},
                     .width = 28,
                     .height = 28,
                     .channels = 1},
                    0);
}

void train(troupe::train_context& context, const config& cfg) {
  // Does nothing on ranks other than 0; finishes at the end of the loop.
  auto tracker =
    troupe::start_tracking(context, {.experiment = "fashion-mnist"});
  tracker.log_params({{"model", "two layers"}, {"optimizer", "adam"}});

  torch::manual_seed(42);
  torch::nn::Sequential layers{torch::nn::Flatten{},
                               torch::nn::Linear{28 * 28, 128},
                               torch::nn::ReLU{}, torch::nn::Linear{128, 10}};
  auto model = troupe::prepare_model(context, layers);
  troupe::fused_adam optimizer{model.parameters(), {.lr = cfg.lr}};
  troupe::fashion_mnist images{cfg.data, troupe::split::train};
  auto loader = troupe::prepare_data_loader(
    context,
    troupe::first_samples{images, cfg.limit > 0 ? cfg.limit : images.size()},
    {.batch_size = cfg.batch_size, .shuffle = true});

  int epoch = 0;
  troupe::train_state state{
    {"model", model}, {"optimizer", optimizer}, {"epoch", epoch}};
  if (context.resume(state))
    ++epoch; // the saved one is done

  auto step = epoch * static_cast<int>(loader.size());
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    loader.set_epoch(epoch);
    troupe::mean_metric mean_loss;
    for (auto& [batch, labels] : loader) {
      optimizer.zero_grad();
      auto loss = torch::cross_entropy_loss(model.forward(batch), labels);
      loss.backward();
      optimizer.step();
      mean_loss.update(loss.detach());
      if (step == 0)
        log_sample(tracker, batch);
      if (step++ % 10 == 0)
        tracker.log({{"batch/loss", loss.item<double>()}}, step);
    }
    troupe::metrics values{{"epoch", epoch}, {"train/loss", mean_loss.value()}};
    context.report(values, state);
  }
  tracker.log_text(
    "note", "trained on the first " + std::to_string(cfg.limit) + " images",
    step);
}

std::shared_ptr<const troupe::tracker> make(tracker kind) {
  switch (kind) {
    case tracker::tensorboard:
      return troupe::tensorboard_tracker();
    case tracker::mlflow:
      return troupe::mlflow_tracker();
    case tracker::wandb:
      return troupe::wandb_tracker({.project = "troupe"});
    case tracker::comet:
      return troupe::comet_tracker({.project = "troupe"});
    case tracker::prometheus:
      return troupe::prometheus_tracker();
    case tracker::csv:
      break;
  }
  return troupe::csv_tracker();
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{.scaling = {.num_workers = 2},
                            .run = {.storage_path = "runs"}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "FashionMNIST with a tracker."});
  run.run.trackers = {make(cfg.tracker)};

  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  for (auto& sentence : result.unsent)
    std::fprintf(stderr, "%s\n", sentence.c_str());
  if (result.error)
    return 1; // fit() has printed why
  if (result.metrics.empty()) {
    std::printf("no epoch was left to train\n");
    return 0;
  }
  std::printf("loss %.4f; files, report.html and metrics.csv are in %s\n",
              result.metrics.number("train/loss"), result.path.c_str());
}
