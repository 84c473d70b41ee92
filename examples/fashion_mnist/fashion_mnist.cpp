// ResNet-18 on FashionMNIST, data-parallel.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "resnet18.hpp"

struct config {
  troupe::fs::path data = troupe::fashion_mnist::default_root();
  troupe::fs::path resume; // the folder of a run to start from
  double lr = 3e-3;        // the highest, after the warm-up
  int seed = 42;
  int epochs = 1;
  int batch_size = 128; // per worker; global batch = batch_size * world size
  int limit = 0;        // training samples per epoch; 0: all

  TROUPE_FIELDS(data, resume, lr, seed, epochs, batch_size, limit)

  void validate() const {
    if (epochs < 0 || batch_size < 1 || limit < 0
        || !(lr > 0 && std::isfinite(lr)))
      throw std::invalid_argument{
        "epochs and limit are at least 0, batch_size at least 1, and lr is a "
        "finite number above 0"};
  }
};

/// Over the samples of all ranks.
struct scores {
  troupe::mean_metric loss;
  troupe::accuracy accuracy{troupe::multiclass_task{.num_classes = 10}};
};

template <class Model, class Loader>
scores validate(Model& model, Loader& loader) {
  torch::NoGradGuard no_grad;
  model.broadcast_buffers();
  model.eval();
  scores result;
  for (auto& [images, labels] : loader) {
    auto logits = model->forward(images);
    result.loss.update(
      torch::cross_entropy_loss(logits, labels, {}, torch::Reduction::None));
    result.accuracy.update(logits, labels);
  }
  model.train();
  return result;
}

void train(troupe::train_context& context, const config& cfg) {
  troupe::fashion_mnist images{cfg.data, troupe::split::train};
  torch::manual_seed(cfg.seed);
  auto model = troupe::prepare_model(context, resnet18(1, 10));
  troupe::fused_adam optimizer{model.parameters(), {.lr = cfg.lr}};
  auto loader = troupe::prepare_data_loader(
    context,
    troupe::first_samples{images, cfg.limit > 0 ? cfg.limit : images.size()},
    {.batch_size = cfg.batch_size,
     .shuffle = true,
     .seed = static_cast<std::uint64_t>(cfg.seed)});
  auto test_loader = troupe::prepare_data_loader(
    context, troupe::fashion_mnist{cfg.data, troupe::split::test},
    {.batch_size = 256, .tail = troupe::tail::no_padding});
  // Up over the first fifth of all steps, then down to zero.
  auto steps = cfg.epochs * loader.size();
  auto warm_up = steps / 5;
  troupe::lr_scheduler schedule{
    optimizer,
    troupe::warm_up_lr(warm_up, troupe::cosine_annealing_lr{
                                  .total = std::max(steps - warm_up, 1L)})};

  int epoch = 0;
  troupe::train_state state{{"model", model},
                            {"optimizer", optimizer},
                            {"schedule", schedule},
                            {"epoch", epoch}};
  auto resumed = context.resume(state);
  if (!resumed && !cfg.resume.empty()) {
    state.load(troupe::checkpoint::from_directory(cfg.resume));
    resumed = true;
  }
  if (resumed)
    ++epoch; // the saved one is done

  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    loader.set_epoch(epoch);
    // The steps of an epoch depend on the number of ranks, which may change.
    schedule.seek(epoch * loader.size());
    troupe::mean_metric mean_loss; // of the batches
    int step = 0;
    for (auto& [batch, labels] : loader) {
      optimizer.zero_grad();
      auto loss = torch::cross_entropy_loss(model.forward(batch), labels);
      loss.backward();
      optimizer.step();
      schedule.step();
      mean_loss.update(loss);
      if (++step % 20 == 0)
        std::printf("epoch %d, step %d of %ld: loss %.3f\n", epoch, step,
                    static_cast<long>(loader.size()), loss.item<double>());
    }
    auto test = validate(model, test_loader);
    troupe::metrics values{{"epoch", epoch},
                           {"train/loss", mean_loss.value()},
                           {"val/loss", test.loss.value()},
                           {"val/accuracy", test.accuracy.value()}};
    context.report(values, state);
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{
    .scaling = {.num_workers = 2},
    .run = {.storage_path = "runs",
            .checkpoint = {.num_to_keep = 2,
                           .checkpoint_score_attribute = "val/accuracy"}}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "ResNet-18 on FashionMNIST, data-parallel."});
  if (!cfg.resume.empty()) {
    auto earlier = troupe::result::from_path(cfg.resume);
    if (!earlier || !earlier->checkpoint) {
      std::fprintf(stderr, "--resume: %s\n",
                   earlier ? "the run has no checkpoint"
                           : earlier.error().message.c_str());
      return 1;
    }
    cfg.resume = earlier->checkpoint->path();
  }

  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  if (result.metrics.empty()) {
    std::printf("no epoch was left to train\n");
    return 0;
  }
  std::printf("validation accuracy %.4f; files are in %s\n",
              result.metrics.number("val/accuracy"), result.path.c_str());
}
