// ResNet-18 on FashionMNIST, data-parallel.

#include <cmath>
#include <cstdio>
#include <numbers>

#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "command_line.hpp"
#include "resnet18.hpp"

constexpr auto usage =
  "fashion_mnist [--workers 2] [--epochs 1] [--batch-size 128] [--lr 3e-3]\n"
  "              [--seed 42] [--limit samples] [--storage runs]\n"
  "              [--name troupe_run-date] [--data folder] [--resume run "
  "folder]\n"
  "              [--gpu]";

struct config {
  std::string data = troupe::fashion_mnist::default_root().string();
  std::string resume; // a checkpoint of another run to start from
  double lr = 3e-3;   // the highest, after the warm-up
  int seed = 42;
  int epochs = 1;
  int batch_size = 128; // per worker; global batch = batch_size * world size
  int limit = 0;        // training samples per epoch; 0: all

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(data), CEREAL_NVP(resume), CEREAL_NVP(lr), CEREAL_NVP(seed),
       CEREAL_NVP(epochs), CEREAL_NVP(batch_size), CEREAL_NVP(limit));
  }
};

/// One cycle: up to *peak* over the first fifth of all steps, then down to zero
/// along a cosine.
double learning_rate(double peak, double step, double steps) {
  auto warm_up = 0.2 * steps;
  if (step < warm_up)
    return peak * (step + 1) / (warm_up + 1);
  auto done = (step - warm_up) / (steps - warm_up);
  return peak / 2 * (1 + std::cos(std::numbers::pi * done));
}

/// Sums over the samples that one rank has seen; then over all ranks.
struct totals {
  explicit totals(torch::Device where)
    : sums(torch::zeros({3}, torch::device(where).dtype(torch::kDouble))) {}

  // Does not wait for the GPU.
  void add(const torch::Tensor& loss, const torch::Tensor& hits, double n) {
    sums[0].add_(loss.detach().to(torch::kDouble), n);
    sums[1].add_(hits);
    sums[2].add_(n);
  }
  double loss() const { return (sums[0] / sums[2]).item<double>(); }
  double accuracy() const { return (sums[1] / sums[2]).item<double>(); }

  torch::Tensor sums; // loss, hits, samples
};

template <class Model, class Loader>
totals validate(troupe::train_context& context, Model& model, Loader& loader) {
  torch::NoGradGuard no_grad;
  model.broadcast_buffers();
  model.eval();
  totals result{troupe::device(context)};
  for (auto& [images, labels] : loader) {
    auto logits = model->forward(images);
    result.add(torch::cross_entropy_loss(logits, labels),
               logits.argmax(1).eq(labels).sum(), labels.size(0));
  }
  model.train();
  troupe::all_reduce_sum(context, result.sums);
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

  int first_epoch = 0;
  auto from = context.checkpoint();
  if (!from && !cfg.resume.empty())
    from = troupe::checkpoint::from_directory(cfg.resume);
  if (from) {
    auto saved = troupe::load_safetensors(from->path() / "state.safetensors");
    troupe::load_tensors(saved, model, {.prefix = "model."});
    optimizer.load_state(saved);
    first_epoch = static_cast<int>(saved.at("epoch").item<std::int64_t>()) + 1;
  }

  for (int epoch = first_epoch; epoch < cfg.epochs && !context.stop_requested();
       ++epoch) {
    loader.set_epoch(epoch);
    totals seen{troupe::device(context)};
    int step = 0;
    for (auto& [batch, labels] : loader) {
      optimizer.set_lr(
        learning_rate(cfg.lr, static_cast<double>(epoch * loader.size() + step),
                      static_cast<double>(cfg.epochs * loader.size())));
      optimizer.zero_grad();
      auto logits = model.forward(batch);
      auto loss = torch::cross_entropy_loss(logits, labels);
      loss.backward();
      optimizer.step();
      seen.add(loss, logits.argmax(1).eq(labels).sum(), labels.size(0));
      if (++step % 20 == 0)
        std::printf("epoch %d, step %d of %ld: loss %.3f\n", epoch, step,
                    static_cast<long>(loader.size()), loss.item<double>());
    }
    troupe::all_reduce_sum(context, seen.sums);
    auto test = validate(context, model, test_loader);
    troupe::metrics values{{"epoch", epoch},
                           {"train/loss", seen.loss()},
                           {"val/loss", test.loss()},
                           {"val/accuracy", test.accuracy()}};
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
  config cfg;
  troupe::torch_options run;
  run.scaling = options.scaling();
  run.run.storage_path = options.folder("--storage", "runs");
  run.run.checkpoint = {.num_to_keep = 2,
                        .checkpoint_score_attribute = "val/accuracy"};
  if (auto name = options.text("--name", ""); !name.empty())
    run.run.name = name;
  cfg.data = options.folder("--data", cfg.data);
  cfg.lr = options.real("--lr", cfg.lr);
  cfg.seed = options.number("--seed", cfg.seed, 0);
  cfg.epochs = options.number("--epochs", cfg.epochs, 0);
  cfg.batch_size = options.number("--batch-size", cfg.batch_size, 1);
  cfg.limit = options.number("--limit", cfg.limit, 0);
  if (auto folder = options.folder("--resume", ""); !folder.empty()) {
    auto earlier = troupe::result::from_path(folder);
    if (!earlier || !earlier->checkpoint) {
      std::fprintf(stderr, "--resume: %s\n",
                   earlier ? "the run has no checkpoint"
                           : earlier.error().message.c_str());
      return 1;
    }
    cfg.resume = earlier->checkpoint->path().string();
  }
  options.finish();

  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  if (result.metrics.empty()) {
    std::printf("no epoch was left to train\n");
    return 0;
  }
  std::printf("validation accuracy %.4f; files are in %s\n",
              result.metrics.at("val/accuracy").number(), result.path.c_str());
}
