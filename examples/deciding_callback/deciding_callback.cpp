// A callback that sees the reports of all ranks and ends the run: as finished
// once their mean loss is low enough, as aborted once it is NaN. No
// LibTorch.

#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>

#include <troupe/train.hpp>

struct config {
  double lr = 0.5;      // above 2 the loss grows until it is NaN
  double target = 0.02; // of the mean loss over all ranks
  int epochs = 1000;

  TROUPE_FIELDS(lr, target, epochs)

  void validate() const {
    if (epochs < 1 || !(lr > 0 && std::isfinite(lr))
        || !(target > 0 && std::isfinite(target)))
      throw std::invalid_argument{
        "epochs is at least 1, lr and target are finite numbers above 0"};
  }
};

class loss_judge : public troupe::user_callback {
public:
  explicit loss_judge(double target) : target_(target) {}

  std::string name() const override { return "loss_judge"; }

  void after_report(const troupe::run_context& run,
                    const std::vector<troupe::metrics>& values,
                    const std::optional<troupe::checkpoint>&) override {
    auto loss = troupe::aggregate(values).at("loss");
    // A folder of the run for files of this callback.
    troupe::fs::ofstream{run.folder(name()) / "losses.txt", std::ios::app}
      << run.report_index << ' ' << loss.mean << ' ' << loss.std << '\n';
    if (!std::isfinite(loss.mean))
      run.control.abort("the loss is not a number after report "
                        + std::to_string(run.report_index));
    else if (loss.mean < target_)
      run.control.finish("the mean loss of all ranks is low enough");
  }

private:
  double target_;
};

/// Fits a line to this rank's own noisy points of y = 3x - 1.
void fit_line(troupe::train_context& context, const config& cfg) {
  std::mt19937 random(static_cast<unsigned>(context.rank()));
  std::uniform_real_distribution<double> place{-1, 1};
  std::normal_distribution<double> noise{0, 0.1};
  double slope = 0, offset = 0;
  for (int epoch = 0; epoch < cfg.epochs && !context.stop_requested();
       ++epoch) {
    double loss = 0, slope_gradient = 0, offset_gradient = 0;
    for (int i = 0; i < 100; ++i) {
      auto x = place(random);
      auto error = slope * x + offset - (3 * x - 1 + noise(random));
      loss += error * error / 100;
      slope_gradient += error * x / 100;
      offset_gradient += error / 100;
    }
    slope -= cfg.lr * slope_gradient;
    offset -= cfg.lr * offset_gradient;
    context.report({{"epoch", epoch}, {"loss", loss}});
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::train_options run{.scaling = {.num_workers = 2},
                            .run = {.storage_path = "runs"}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "A callback that ends the run."});
  run.run.callbacks = {std::make_shared<loss_judge>(cfg.target)};
  auto result = troupe::data_parallel_trainer{fit_line, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  std::printf("%s after epoch %d, loss %.4f; losses of each epoch are in %s\n",
              result.stop_reason.empty() ? "no decision"
                                         : result.stop_reason.c_str(),
              static_cast<int>(result.metrics.number("epoch")),
              result.metrics.number("loss"),
              (result.path / "callbacks" / "loss_judge").c_str());
}
