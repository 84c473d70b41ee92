// Searches for the learning rate and momentum with which a line is fitted best:
// a dozen trials, each a run of its own, the worse ones ended early. No
// LibTorch. Start it again after Ctrl-C or `kill -9`, and it continues.

#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>

#include <troupe/sweep.hpp>

enum class schedule { constant, linear };

struct config {
  double lr = 0.01;
  double momentum = 0;
  ::schedule schedule = ::schedule::constant;
  int epochs = 27;

  TROUPE_FIELDS(lr, momentum, schedule, epochs)

  void validate() const {
    if (epochs < 1 || !(lr > 0 && std::isfinite(lr))
        || !(momentum >= 0 && momentum < 1))
      throw std::invalid_argument{
        "epochs is at least 1, lr is a finite number above 0, and momentum is "
        "0 to 1, without 1"};
  }
};

/// What the program takes: trials do not depend on how many there are.
struct arguments : config {
  int trials = 12;

  TROUPE_FIELDS(lr, momentum, schedule, epochs, trials)

  void validate() const {
    config::validate();
    if (trials < 1)
      throw std::invalid_argument{"trials is at least 1"};
  }
};

/// The line so far, and what momentum remembers.
struct line {
  double slope = 0, offset = 0, slope_velocity = 0, offset_velocity = 0;

  TROUPE_FIELDS(slope, offset, slope_velocity, offset_velocity)
};

/// Fits y = 3x - 1 to noisy points; resumes from the last checkpoint.
void fit_line(troupe::train_context& context, const config& cfg) {
  line x;
  int epoch = 0;
  troupe::train_state state{{"line", x}, {"epoch", epoch}};
  if (context.resume(state))
    ++epoch; // the saved one is done
  for (; epoch < cfg.epochs && !context.stop_requested(); ++epoch) {
    std::minstd_rand random{1};
    std::uniform_real_distribution<double> place{-1, 1};
    std::normal_distribution<double> noise{0, 0.1};
    auto lr = cfg.schedule == schedule::constant
                ? cfg.lr
                : cfg.lr * (1 - static_cast<double>(epoch) / cfg.epochs);
    double loss = 0;
    for (int i = 0; i < 100; ++i) {
      auto at = place(random);
      auto error = x.slope * at + x.offset - (3 * at - 1 + noise(random));
      loss += error * error / 100;
      x.slope_velocity = cfg.momentum * x.slope_velocity - lr * error * at;
      x.offset_velocity = cfg.momentum * x.offset_velocity - lr * error;
      x.slope += x.slope_velocity;
      x.offset += x.offset_velocity;
    }
    context.report({{"loss", loss}}, state);
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::train_options run{.scaling = {.num_workers = 1},
                            .run = {.name = "line_search",
                                    .storage_path = "runs",
                                    .checkpoint = {.num_to_keep = 1}}};
  auto given = troupe::parse_config<arguments>(
    argc, argv, run,
    {.about = "Searches for the config that fits a line best.",
     .for_sweep = true});
  const config& cfg = given;
  auto outcome =
    troupe::sweep{
      troupe::data_parallel_trainer{fit_line, cfg, run},
      {{"lr", troupe::log_uniform(1e-4, 1)},
       {"momentum", troupe::uniform(0, 0.95)},
       {"schedule", troupe::choice({"constant", "linear"})}},
      {.metric = "loss",
       .trials = given.trials,
       .searcher = troupe::sobol_search(),
       .halving = troupe::halving_options{.min_reports = 3, .reduction = 3}}}
      .fit();
  if (outcome.error)
    return 1; // fit() has printed why
  auto best = outcome.best();
  if (!best) {
    std::fprintf(stderr, "sweep: %s\n", best.error().message.c_str());
    return 1;
  }
  std::printf("best of %zu trials: %s, loss %.4f with %s\n",
              outcome.trials.size(), best->name.c_str(), *best->score,
              to_string(best->params).c_str());
}
