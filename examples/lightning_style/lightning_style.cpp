// A small convolutional network on FashionMNIST, written as with Lightning: a
// module with its steps, a loop, callbacks. Resumes after its last epoch if a
// run of the same name was interrupted.

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>

struct config {
  troupe::fs::path data = troupe::fashion_mnist::default_root();
  double lr = 2e-3;
  int epochs = 3;
  int limit = 4096; // training samples per epoch

  TROUPE_FIELDS(data, lr, epochs, limit)

  void validate() const {
    if (epochs < 1 || limit < 1 || !(lr > 0 && std::isfinite(lr)))
      throw std::invalid_argument{
        "epochs and limit are at least 1, and lr is a finite number above 0"};
  }
};

struct classifier
  : troupe::training_module<std::pair<torch::Tensor, torch::Tensor>> {
  explicit classifier(double lr) : lr(lr) {}

  torch::Tensor loss(const std::string& stage, batch& x) {
    auto& [images, labels] = x;
    auto logits = net->forward(images);
    auto loss = torch::cross_entropy_loss(logits, labels);
    auto hits = logits.argmax(1).eq(labels).to(torch::kFloat).mean();
    // Means over the epoch and all ranks.
    log(stage + "/loss", loss,
        {.on_step = false, .on_epoch = true, .sync_dist = true});
    log(stage + "/accuracy", hits,
        {.on_step = false, .on_epoch = true, .sync_dist = true});
    return loss;
  }

  torch::Tensor training_step(batch& x, std::int64_t) override {
    return loss("train", x);
  }

  void validation_step(batch& x, std::int64_t) override { loss("val", x); }

  troupe::loop_optimizer configure_optimizers() override {
    return {std::make_shared<troupe::fused_adam>(
              parameters(), troupe::adam_options{.lr = lr}),
            {.factor = troupe::exponential_lr{0.7}}};
  }

  double lr;
  torch::nn::Sequential net = register_module(
    "net",
    torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).stride(2)),
      torch::nn::ReLU(),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).stride(2)),
      torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(1152, 10)));
};

void train(troupe::train_context& context, const config& cfg) {
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

  troupe::epoch_loop loop{
    context,
    {.max_epochs = cfg.epochs, .gradient_clip_val = 1.0},
    {std::make_shared<troupe::learning_rate_monitor>(),
     std::make_shared<troupe::early_stopping_callback>(
       troupe::early_stopping_options{.monitor = "val/loss"}),
     std::make_shared<troupe::train_report_callback>()}};
  loop.fit(std::make_shared<classifier>(cfg.lr), train_loader, val_loader);
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{
    .scaling = {.num_workers = 2},
    .run = {.storage_path = "runs", .checkpoint = {.num_to_keep = 1}}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "A module with steps in an epoch loop."});
  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  if (auto epochs = result.metrics_history())
    for (auto& epoch : *epochs)
      std::printf("%s\n", troupe::to_string(epoch.values[0]).c_str());
  std::printf("files are in %s\n", result.path.c_str());
}
