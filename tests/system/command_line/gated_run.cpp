// A run of two ranks, or a sweep of such runs, that a test can hold where it
// likes.
//
//   gated_run --storage FOLDER [--name NAME] [--steps N] [--every N]
//             [--hold N --gate FIFO] [--fails-at N] [--max-failures N]
//             [--score METRIC] [--sweep N [--hold-trial N] [--fails-trial N]]
//
// Before step `hold`, rank 0 opens the FIFO `gate` for reading, which waits for
// a writer. Before step `fails-at` it throws, in the first attempt only. The
// least `score` ranks the checkpoints, the loss by default; empty: none does.
// With `sweep`, N trials run one after the other, and only the trials given do
// so; each is held with `hold-trial` -1.

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include <cereal/cereal.hpp>

#include <troupe/sweep.hpp>

namespace {

struct plan {
  double lr = 0.5;
  int steps = 4;
  int every = 1;
  int hold = -1;
  std::string gate;
  int fails_at = -1;
  int trial = 0; // set by a sweep
  int hold_trial = 0;
  int fails_trial = 0;

  TROUPE_FIELDS(lr, steps, every, hold, gate, fails_at, trial, hold_trial,
                fails_trial)
};

void wait_at(const std::string& gate) {
  auto file = ::open(gate.c_str(), O_RDONLY | O_CLOEXEC);
  char byte;
  (void) !::read(file, &byte, 1);
  ::close(file);
}

int next_step(troupe::train_context& context) {
  auto from = context.checkpoint();
  if (!from)
    return 0;
  int step = 0;
  std::ifstream{(from->path() / "step").string()} >> step;
  return step + 1;
}

/// Returns the number of steps.
int loop(troupe::train_context& context, const plan& x) {
  for (auto step = next_step(context);
       step < x.steps && !context.stop_requested(); ++step) {
    if (step == x.hold && (x.trial == x.hold_trial || x.hold_trial < 0)
        && context.rank() == 0)
      wait_at(x.gate);
    if (step == x.fails_at && x.trial == x.fails_trial && context.rank() == 0
        && context.attempt() == 0)
      throw std::runtime_error{"the loss is a banana"};
    troupe::metrics values{{"loss", (1.0 + x.trial) / (1 + step)},
                           {"step", step},
                           {"note", "step " + std::to_string(step)}};
    if (context.rank() == 0 && x.every > 0 && step % x.every == 0) {
      auto files = context.new_checkpoint();
      std::ofstream{(files.path() / "step").string()} << step;
      context.report(std::move(values), std::move(files));
    } else {
      context.report(std::move(values));
    }
  }
  return x.steps;
}

} // namespace

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2)
    given[argv[i]] = argv[i + 1];
  auto number = [&](const char* name, int fallback) {
    return given.count(name) ? std::stoi(given[name]) : fallback;
  };
  plan x;
  x.steps = number("--steps", x.steps);
  x.every = number("--every", x.every);
  x.hold = number("--hold", x.hold);
  x.gate = given["--gate"];
  x.fails_at = number("--fails-at", x.fails_at);
  troupe::train_options options;
  options.scaling.num_workers = 2;
  options.run.name = given.count("--name") ? given["--name"] : "run";
  options.run.storage_path = given["--storage"];
  options.run.quiet = true;
  options.run.failure.max_failures = number("--max-failures", 0);
  options.run.checkpoint.checkpoint_score_attribute =
    given.count("--score") ? given["--score"] : "loss";
  options.run.checkpoint.checkpoint_score_order = troupe::score_order::min;
  x.hold_trial = number("--hold-trial", 0);
  x.fails_trial = number("--fails-trial", 0);
  troupe::data_parallel_trainer trainer{loop, x, options};
  std::string problem;
  if (auto trials = number("--sweep", 0); trials > 0) {
    troupe::sweep search{trainer,
                         {{"trial", troupe::integers(0, trials - 1)}},
                         {.metric = "loss",
                          .trials = trials,
                          .searcher = troupe::grid_search(trials),
                          .max_concurrent = 1}};
    if (auto found = search.fit(); found.error)
      problem = found.error->message;
  } else if (auto found = trainer.fit(); found.error) {
    problem = found.error->message;
  }
  if (!problem.empty())
    std::fprintf(stderr, "%s\n", problem.c_str());
  return problem.empty() ? 0 : 3;
}
