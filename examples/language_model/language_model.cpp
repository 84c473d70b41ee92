// A small GPT learns to write, byte by byte, like a text that Debian ships.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <troupe/torch.hpp>

#include "gpt.hpp"

struct config {
  std::vector<troupe::fs::path> text; // none: of Debian's package fortunes
  gpt_options model;
  int epochs = 3;
  int batch_size = 4; // windows of `model.context` bytes, per worker
  int accumulate = 2; // batches per step
  int limit = 0;      // training windows per epoch; 0: all
  double lr = 2e-3;   // the highest, after the warm-up
  double weight_decay = 0.1;
  double clip = 1; // norm of the gradient
  int seed = 42;
  std::string prompt; // what samples continue; empty: the start of a line
  double temperature = 0.8;

  TROUPE_FIELDS(text, model, epochs, batch_size, accumulate, limit, lr,
                weight_decay, clip, seed, prompt, temperature)

  std::vector<troupe::fs::path> files() const {
    if (!text.empty())
      return text;
    const troupe::fs::path folder{"/usr/share/games/fortunes"};
    return {folder / "computers",  folder / "cookie", folder / "definitions",
            folder / "literature", folder / "people", folder / "science",
            folder / "wisdom",     folder / "work"};
  }

  void validate() const {
    for (auto& path : files())
      if (!troupe::fs::is_regular_file(path))
        throw std::invalid_argument{
          path.string() + " is not a file: "
          + (text.empty()
               ? "install Debian's package fortunes, or name a text with --text"
               : "--text names texts to learn from")};
    if (epochs < 0 || batch_size < 1 || accumulate < 1 || limit < 0)
      throw std::invalid_argument{"epochs and limit are at least 0, batch_size "
                                  "and accumulate at least 1"};
    if (model.layers < 1 || model.heads < 1 || model.context < 1
        || model.width < 1 || model.width % model.heads != 0)
      throw std::invalid_argument{"the sizes of the model are at least 1, and "
                                  "model.heads divides model.width"};
    if (model.layers > 1000 || model.width > 65'536 || model.context > 65'536)
      throw std::invalid_argument{"model.layers is at most 1000, model.width "
                                  "and model.context are at most 65536"};
    for (auto x : {lr, clip, temperature})
      if (!(x > 0 && std::isfinite(x)))
        throw std::invalid_argument{
          "lr, clip and temperature are finite numbers above 0"};
    if (!(weight_decay >= 0 && std::isfinite(weight_decay)))
      throw std::invalid_argument{
        "weight_decay is a finite number, at least 0"};
  }
};

/// A text in windows of *context* bytes, each with the bytes one further.
struct windows {
  std::int64_t size() const { return (bytes.size(0) - 1) / context; }

  std::pair<torch::Tensor, torch::Tensor>
  get_batch(std::span<const std::int64_t> indices) const {
    auto first = torch::tensor(c10::ArrayRef{indices.data(), indices.size()});
    auto places = first.unsqueeze(1) * context + torch::arange(context + 1);
    auto x = bytes.take(places).to(torch::kLong);
    return {x.slice(1, 0, context), x.slice(1, 1)};
  }

  torch::Tensor bytes;
  std::int64_t context;
};

/// The files of *cfg*: what to learn from, and the last tenth of each file to
/// validate on.
std::pair<windows, windows> read_text(const config& cfg) {
  std::vector<std::uint8_t> train, val;
  for (auto& path : cfg.files()) {
    troupe::fs::ifstream file{path, std::ios::binary};
    std::string all{std::istreambuf_iterator<char>{file}, {}};
    if (!file)
      throw std::runtime_error{path.string() + " cannot be read"};
    auto middle =
      all.begin() + static_cast<std::ptrdiff_t>(all.size() / 10 * 9);
    train.insert(train.end(), all.begin(), middle);
    val.insert(val.end(), middle, all.end());
  }
  auto context = cfg.model.context;
  return {{torch::tensor(train, torch::kByte), context},
          {torch::tensor(val, torch::kByte), context}};
}

/// Weight decay is for matrices; a bias or a norm has nothing to shrink.
troupe::fused_adamw make_optimizer(const std::vector<torch::Tensor>& parameters,
                                   const config& cfg) {
  troupe::adamw_options options{
    .lr = cfg.lr, .betas = {0.9, 0.99}, .weight_decay = cfg.weight_decay};
  troupe::parameter_group<troupe::adamw_options> matrices{{}, options};
  options.weight_decay = 0;
  troupe::parameter_group<troupe::adamw_options> others{{}, options};
  for (auto& x : parameters)
    (x.dim() >= 2 ? matrices : others).parameters.push_back(x);
  return troupe::fused_adamw{{matrices, others}};
}

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& next) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), next.flatten());
}

/// What the model writes, with a dot for each byte that terminals do not show.
std::string sample(gpt_impl& model, const config& cfg, int length, int number) {
  auto text =
    model.write(cfg.prompt.empty() ? "\n" : cfg.prompt, length, cfg.temperature,
                static_cast<std::uint64_t>(cfg.seed + number));
  for (auto& x : text)
    if ((x < ' ' && x != '\n' && x != '\t') || x > '~')
      x = '.';
  return text;
}

/// Takes the steps of one epoch. Returns the mean loss over all ranks.
template <class Model, class Loader>
double train_epoch(Model& model, Loader& loader, troupe::fused_adamw& optimizer,
                   troupe::lr_scheduler& schedule, const config& cfg) {
  troupe::mean_metric mean_loss;
  auto learn = [&](const auto& batch) {
    auto loss = loss_of(model.forward(batch.first), batch.second);
    (loss / cfg.accumulate).backward();
    mean_loss.update(loss);
  };
  int batches = 0;
  for (auto& batch : loader) {
    if (++batches % cfg.accumulate != 0) {
      auto alone = model.no_sync(); // The last batch sends the sum of all.
      learn(batch);
      continue;
    }
    learn(batch);
    troupe::clip_grad_norm(model.parameters(), cfg.clip);
    optimizer.step();
    schedule.step();
    optimizer.zero_grad();
  }
  return mean_loss.value();
}

/// The mean loss over the held-out windows of all ranks.
template <class Model, class Loader>
double validate(Model& model, Loader& loader) {
  torch::NoGradGuard no_grad;
  troupe::mean_metric mean_loss;
  for (auto& [bytes, next] : loader)
    mean_loss.update(loss_of(model->forward(bytes), next),
                     torch::tensor(static_cast<double>(bytes.size(0))));
  return mean_loss.value();
}

std::string train(troupe::train_context& context, const config& cfg) {
  auto [text, held_out] = read_text(cfg);
  torch::manual_seed(cfg.seed);
  auto model = troupe::prepare_model(context, gpt(cfg.model));
  auto optimizer = make_optimizer(model.parameters(), cfg);

  // Whole steps only.
  auto per_step =
    std::int64_t{cfg.batch_size} * cfg.accumulate * context.world_size();
  auto used = cfg.limit > 0 ? std::min<std::int64_t>(cfg.limit, text.size())
                            : text.size();
  auto steps = used / per_step;
  if (steps == 0 || held_out.size() == 0)
    throw std::invalid_argument{"the text is too short: a step takes "
                                + std::to_string(per_step) + " windows of "
                                + std::to_string(cfg.model.context) + " bytes"};
  auto loader = troupe::prepare_data_loader(
    context, troupe::first_samples{text, steps * per_step},
    {.batch_size = cfg.batch_size,
     .shuffle = true,
     .seed = static_cast<std::uint64_t>(cfg.seed)});
  auto val_loader = troupe::prepare_data_loader(
    context, held_out, {.batch_size = 32, .tail = troupe::tail::no_padding});

  auto total = steps * cfg.epochs, warm_up = total / 20;
  troupe::lr_scheduler schedule{
    optimizer,
    troupe::warm_up_lr(
      warm_up, troupe::cosine_annealing_lr{
                 .total = std::max(total - warm_up, 1L), .min_factor = 0.1})};

  int epoch = 0;
  troupe::train_state state{{"model", model},
                            {"optimizer", optimizer},
                            {"schedule", schedule},
                            {"epoch", epoch}};
  if (context.resume(state))
    ++epoch; // the saved one is done

  auto tokens = static_cast<double>(steps * per_step * cfg.model.context);
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    loader.set_epoch(epoch);
    schedule.seek(epoch * steps); // more or fewer if the ranks have changed
    auto begin = std::chrono::steady_clock::now();
    auto train_loss = train_epoch(model, loader, optimizer, schedule, cfg);
    std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
    auto val_loss = validate(model, val_loader);
    if (context.rank() == 0)
      std::printf("--- after epoch %d, loss %.3f:\n%s\n", epoch, val_loss,
                  sample(model.module(), cfg, 200, epoch).c_str());
    context.report({{"epoch", epoch},
                    {"train/loss", train_loss},
                    {"val/loss", val_loss},
                    {"lr", optimizer.lr()},
                    {"tokens_per_s", tokens / seconds.count()}},
                   state);
  }
  return context.rank() == 0 ? sample(model.module(), cfg, 600, epoch) : "";
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{
    .scaling = {.num_workers = 2},
    .run = {.storage_path = "runs", .checkpoint = {.num_to_keep = 1}}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run,
    {.about = "A small GPT learns to write like a text, byte by byte."});
  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  if (auto text = result.return_value<std::string>())
    std::printf("--- in the end:\n%s\n---\n", text->c_str());
  std::printf("files are in %s\n", result.path.c_str());
}
