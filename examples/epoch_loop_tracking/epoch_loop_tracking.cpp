// An epoch loop as with Lightning, followed by an experiment tracker: the
// module logs, the loop reports, the tracker gets everything. No guard for rank
// 0, and a restarted run continues its curves.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>
#include <troupe/trackers.hpp>

enum class tracker { tensorboard, mlflow, wandb, comet };

struct config {
  ::tracker tracker = ::tracker::tensorboard;
  troupe::fs::path data = troupe::fashion_mnist::default_root();
  double lr = 1e-3;
  int epochs = 2;
  int limit = 6400; // training samples per epoch

  TROUPE_FIELDS(tracker, data, lr, epochs, limit)

  void validate() const {
    if (epochs < 1 || limit < 1 || !(lr > 0 && std::isfinite(lr)))
      throw std::invalid_argument{
        "epochs and limit are at least 1, and lr is a finite number above 0"};
  }
};

struct classifier
  : troupe::training_module<std::pair<torch::Tensor, torch::Tensor>> {
  explicit classifier(double lr) : lr(lr) {}

  torch::Tensor training_step(batch& x, std::int64_t) override {
    auto loss = torch::cross_entropy_loss(net->forward(x.first), x.second);
    log("train/loss", loss, {.on_step = false, .on_epoch = true});
    return loss;
  }

  void validation_step(batch& x, std::int64_t) override {
    auto logits = net->forward(x.first);
    log("val/loss", torch::cross_entropy_loss(logits, x.second),
        {.sync_dist = true});
    log("val/accuracy", logits.argmax(1).eq(x.second).to(torch::kFloat).mean(),
        {.sync_dist = true});
  }

  troupe::loop_optimizer configure_optimizers() override {
    return std::make_shared<troupe::fused_adam>(parameters(),
                                                troupe::adam_options{.lr = lr});
  }

  double lr;
  torch::nn::Sequential net = register_module(
    "net",
    torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(28 * 28, 128),
                          torch::nn::ReLU(), torch::nn::Linear(128, 10)));
};

/// Shows the largest weight of each epoch, beside what the loop reports.
struct weight_watch : troupe::loop_callback {
  explicit weight_watch(troupe::tracking_handle& tracker) : tracker(tracker) {}

  void on_train_epoch_end(troupe::epoch_loop& loop) override {
    auto largest = 0.0;
    for (auto& x : loop.module().parameters())
      largest = std::max(largest, x.detach().abs().max().item<double>());
    tracker.log({{"largest_weight", largest}}, loop.global_step());
  }

  troupe::tracking_handle& tracker;
};

void train(troupe::train_context& context, const config& cfg) {
  auto tracker =
    troupe::start_tracking(context, {.experiment = "fashion-mnist"});
  tracker.log_params({{"optimizer", "adam"}, {"hidden", 128}});
  torch::manual_seed(42);
  troupe::fashion_mnist images{cfg.data, troupe::split::train};
  auto train_loader = troupe::prepare_data_loader(
    context, troupe::first_samples{images, cfg.limit},
    {.batch_size = 64, .shuffle = true});
  auto val_loader = troupe::prepare_data_loader(
    context,
    troupe::first_samples{troupe::fashion_mnist{cfg.data, troupe::split::test},
                          2000},
    {.batch_size = 250, .tail = troupe::tail::no_padding});
  troupe::epoch_loop loop{context,
                          {.max_epochs = cfg.epochs},
                          {std::make_shared<weight_watch>(tracker),
                           std::make_shared<troupe::train_report_callback>()}};
  loop.fit(std::make_shared<classifier>(cfg.lr), train_loader, val_loader);
}

std::shared_ptr<const troupe::tracker> make(tracker kind) {
  switch (kind) {
    case tracker::mlflow:
      return troupe::mlflow_tracker();
    case tracker::wandb:
      return troupe::wandb_tracker({.project = "troupe"});
    case tracker::comet:
      return troupe::comet_tracker({.project = "troupe"});
    case tracker::tensorboard:
      break;
  }
  return troupe::tensorboard_tracker();
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{.scaling = {.num_workers = 2},
                            .run = {.storage_path = "runs",
                                    .failure = {.max_failures = 3},
                                    .checkpoint = {.num_to_keep = 1}}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "An epoch loop with a tracker."});
  run.run.trackers = {make(cfg.tracker)};
  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  for (auto& sentence : result.unsent)
    std::fprintf(stderr, "%s\n", sentence.c_str());
  if (result.error)
    return 1; // fit() has printed why
  std::printf("validation accuracy %.4f; files are in %s\n",
              result.metrics.number("val/accuracy"), result.path.c_str());
}
