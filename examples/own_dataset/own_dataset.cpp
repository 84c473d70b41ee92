// A dataset of one's own: two rings of points, the outer one rare. Points are
// made with random numbers of their own, samples become batches by `collate`,
// and a weighted order shows both rings equally often.

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <torch/torch.h>

#include <troupe/torch.hpp>

struct config {
  int points = 4000;
  double rare = 0.02; // share of the outer ring
  bool balanced = true;
  int epochs = 5;
  int readers = 2; // threads that read ahead
  double lr = 1e-2;

  TROUPE_FIELDS(points, rare, balanced, epochs, readers, lr)

  void validate() const {
    if (epochs < 1 || points > 10'000'000 || !(rare < 1 && rare * points >= 1))
      throw std::invalid_argument{
        "epochs is at least 1, points at most 10000000, rare is below 1, and "
        "rare * points, the number of rare points, is at least 1"};
    if (readers < 0 || readers > 64 || !(lr > 0 && std::isfinite(lr)))
      throw std::invalid_argument{
        "readers is 0 to 64, and lr is a finite number above 0"};
  }
};

/// One sample; a batch is the same struct with one more dimension.
struct point {
  torch::Tensor place; // float32 [2]
  torch::Tensor ring;  // int64: 0 inner, 1 outer

  auto members() { return std::tie(place, ring); }
};

/// Map style: `size()` and `get(index)`. Everything is const, so that all
/// readers share one object.
class rings {
public:
  rings(std::int64_t size, double rare)
    : size_(size), outer_(static_cast<std::int64_t>(rare * size)) {}

  std::int64_t size() const noexcept { return size_; }

  bool is_outer(std::int64_t index) const noexcept { return index < outer_; }

  /// A transform draws from *random* alone: the point depends on seed, epoch
  /// and index, whichever thread of whichever rank makes it.
  point get(std::int64_t index, at::Generator random) const {
    auto angle = 2 * M_PI * static_cast<double>(index) / size_ * 50;
    auto radius = is_outer(index) ? 2.0 : 1.0;
    auto place = torch::tensor({static_cast<float>(radius * std::cos(angle)),
                                static_cast<float>(radius * std::sin(angle))});
    return {place + 0.2 * torch::randn({2}, random),
            torch::tensor(std::int64_t{is_outer(index)})};
  }

private:
  std::int64_t size_;
  std::int64_t outer_;
};

/// The share of the outer points that *model* finds, over all ranks.
template <class Model, class Loader>
double outer_found(Model& model, Loader& loader) {
  torch::NoGradGuard no_grad;
  troupe::mean_metric share;
  for (auto& batch : loader) {
    auto outer = batch.ring.eq(1);
    auto found = model->forward(batch.place).argmax(1).eq(1);
    share.update(found.masked_select(outer).to(torch::kFloat));
  }
  return share.value();
}

void train(troupe::train_context& context, const config& cfg) {
  torch::manual_seed(42);
  rings data{cfg.points, cfg.rare};
  std::vector<double> weights;
  for (std::int64_t i = 0; i < data.size(); ++i)
    weights.push_back(data.is_outer(i) ? 1 / cfg.rare : 1 / (1 - cfg.rare));
  troupe::data_loader_options options{.batch_size = 50, .workers = cfg.readers};
  if (cfg.balanced)
    options.order = troupe::weighted_order(weights, data.size());
  else
    options.shuffle = true;
  auto loader = troupe::prepare_data_loader(context, data, options);
  auto test_loader = troupe::prepare_data_loader(
    context, data,
    {.batch_size = 200, .seed = 1, .tail = troupe::tail::no_padding});

  torch::nn::Sequential layers{torch::nn::Linear{2, 32}, torch::nn::ReLU{},
                               torch::nn::Linear{32, 2}};
  auto model = troupe::prepare_model(context, layers);
  troupe::fused_adam optimizer{model.parameters(), {.lr = cfg.lr}};
  int epoch = 0;
  troupe::train_state state{{"model", model},
                            {"optimizer", optimizer},
                            {"loader", loader},
                            {"epoch", epoch}};
  if (context.resume(state))
    ++epoch; // the saved one is done
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    loader.set_epoch(epoch);
    troupe::mean_metric loss, outer_seen;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      auto error =
        torch::cross_entropy_loss(model.forward(batch.place), batch.ring);
      error.backward();
      optimizer.step();
      loss.update(error.detach());
      outer_seen.update(batch.ring.to(torch::kFloat).mean());
    }
    context.report({{"epoch", epoch},
                    {"loss", loss.value()},
                    {"outer_seen", outer_seen.value()},
                    {"outer_found", outer_found(model, test_loader)}},
                   state);
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::torch_options run{
    .scaling = {.num_workers = 2},
    .run = {.storage_path = "runs", .checkpoint = {.num_to_keep = 1}}};
  auto cfg = troupe::parse_config<config>(argc, argv, run,
                                          {.about = "A dataset of one's own."});
  auto result = troupe::torch_trainer{train, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  std::printf("%.0f %% of the samples were of the outer ring; %.0f %% of its "
              "points were found\n",
              100 * result.metrics.number("outer_seen"),
              100 * result.metrics.number("outer_found"));
}
