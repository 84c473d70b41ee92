// A run of two ranks that a test can hold where it likes.
//
//   gated_run --storage FOLDER [--name NAME] [--steps N] [--every N]
//             [--hold N --gate FIFO] [--fails-at N] [--max-failures N]
//
// Before step `hold`, rank 0 opens the FIFO `gate` for reading, which waits for
// a writer. Before step `fails-at` it throws, in the first attempt only.

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include <cereal/cereal.hpp>

#include <troupe/train.hpp>

namespace {

struct plan {
  double lr = 0.5;
  int steps = 4;
  int every = 1;
  int hold = -1;
  std::string gate;
  int fails_at = -1;

  TROUPE_FIELDS(lr, steps, every, hold, gate, fails_at)
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

void loop(troupe::train_context& context, const plan& x) {
  for (auto step = next_step(context);
       step < x.steps && !context.stop_requested(); ++step) {
    if (step == x.hold && context.rank() == 0)
      wait_at(x.gate);
    if (step == x.fails_at && context.rank() == 0 && context.attempt() == 0)
      throw std::runtime_error{"the loss is a banana"};
    troupe::metrics values{{"loss", 1.0 / (1 + step)},
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
  options.run.checkpoint.checkpoint_score_attribute = "loss";
  options.run.checkpoint.checkpoint_score_order = troupe::score_order::min;
  troupe::data_parallel_trainer trainer{loop, x, options};
  auto result = trainer.fit();
  if (result.error)
    std::fprintf(stderr, "%s\n", result.error->message.c_str());
  return result.error ? 3 : 0;
}
