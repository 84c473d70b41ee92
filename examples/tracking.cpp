// A small network on FashionMNIST, shown in the tracker of your choice.
// Credentials come from the environment, as for each tracker's own client.

#include <cstdio>
#include <functional>
#include <map>

#include <torch/torch.h>

#include <troupe/torch.hpp>
#include <troupe/trackers.hpp>

#include "command_line.hpp"

constexpr auto usage =
  "tracking [--tracker csv|tensorboard|mlflow|wandb|comet|prometheus]\n"
  "         [--workers 2] [--epochs 2] [--limit samples] [--lr 1e-3]\n"
  "         [--storage runs] [--name troupe_run-date] [--data folder] [--gpu]";

struct config {
  std::string data = troupe::fashion_mnist::default_root().string();
  double lr = 1e-3;
  int epochs = 2;
  int batch_size = 64; // per worker
  int limit = 0;       // training samples per epoch; 0: all

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(data), CEREAL_NVP(lr), CEREAL_NVP(epochs),
       CEREAL_NVP(batch_size), CEREAL_NVP(limit));
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

  int first_epoch = 0;
  if (auto& last = context.checkpoint()) {
    auto saved = troupe::load_safetensors(last->path() / "state.safetensors");
    troupe::load_tensors(saved, model, {.prefix = "model."});
    optimizer.load_state(saved);
    first_epoch = static_cast<int>(saved.at("epoch").item<std::int64_t>()) + 1;
  }

  auto step = first_epoch * static_cast<int>(loader.size());
  for (int epoch = first_epoch; epoch < cfg.epochs && !context.stop_requested();
       ++epoch) {
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
  tracker.log_text(
    "note", "trained on the first " + std::to_string(cfg.limit) + " images",
    step);
}

/// The tracker called *name*; metrics.csv comes with every run.
std::shared_ptr<const troupe::tracker> tracker_for(const std::string& name) {
  static const std::map<std::string,
                        std::function<std::shared_ptr<troupe::tracker>()>>
    trackers{
      {"csv", [] { return troupe::csv_tracker(); }},
      {"tensorboard", [] { return troupe::tensorboard_tracker(); }},
      {"mlflow", [] { return troupe::mlflow_tracker(); }},
      {"wandb", [] { return troupe::wandb_tracker({.project = "troupe"}); }},
      {"comet", [] { return troupe::comet_tracker({.project = "troupe"}); }},
      {"prometheus", [] { return troupe::prometheus_tracker(); }},
    };
  auto found = trackers.find(name);
  if (found == trackers.end()) {
    std::fprintf(stderr, "there is no tracker '%s'; there are", name.c_str());
    for (auto& [known, make] : trackers)
      std::fprintf(stderr, " %s", known.c_str());
    std::fputc('\n', stderr);
    std::exit(2);
  }
  return found->second();
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  command_line options{argc, argv, usage};
  config cfg;
  cfg.data = options.folder("--data", cfg.data);
  cfg.lr = options.real("--lr", cfg.lr);
  cfg.epochs = options.number("--epochs", cfg.epochs, 0);
  cfg.limit = options.number("--limit", 6400, 0);
  troupe::torch_options run;
  run.scaling = options.scaling();
  run.run.storage_path = options.folder("--storage", "runs");
  if (auto name = options.text("--name", ""); !name.empty())
    run.run.name = name;
  run.run.trackers = {tracker_for(options.text("--tracker", "csv"))};
  options.finish();

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
              result.metrics.at("train/loss").number(), result.path.c_str());
}
