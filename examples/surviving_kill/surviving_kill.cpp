// A run that loses a rank and then its driver to `kill -9`, and still has each
// report once. Start it twice: the first start is killed, the second resumes.
// No LibTorch.

#include <csignal>
#include <cstdio>
#include <stdexcept>

#include <troupe/train.hpp>

struct config {
  int steps = 60;
  int kill_rank_at = 20;   // step at which rank 1 is killed; 0: it is not
  int kill_driver_at = 40; // step at which this program is killed; 0: it is not

  TROUPE_FIELDS(steps, kill_rank_at, kill_driver_at)

  void validate() const {
    if (steps < 1 || kill_rank_at < 0 || kill_driver_at < 0)
      throw std::invalid_argument{"steps is at least 1, kill_rank_at and "
                                  "kill_driver_at are at least 0"};
  }
};

/// Adds up the numbers to `steps`.
void add(troupe::train_context& context, const config& cfg) {
  int step = 0;
  long sum = 0;
  troupe::train_state state{{"step", step}, {"sum", sum}};
  context.resume(state); // after a restart: where the last report was stored
  auto first_attempt = context.attempt() == 0;
  while (step < cfg.steps && !context.stop_requested()) {
    ++step;
    if (step == cfg.kill_rank_at && context.rank() == 1 && first_attempt)
      std::raise(SIGKILL);
    sum += step;
    context.report({{"step", step}, {"sum", sum}}, state);
  }
}

/// Kills this program once, after the report of step `at`.
struct driver_killer : troupe::user_callback {
  explicit driver_killer(int at) : at(at) {}

  std::string name() const override { return "driver_killer"; }

  void after_report(const troupe::run_context& run,
                    const std::vector<troupe::metrics>& values,
                    const std::optional<troupe::checkpoint>&) override {
    auto mark = run.folder(name()) / "killed";
    if (values[0].number("step") != at || troupe::fs::exists(mark))
      return;
    troupe::fs::ofstream{mark} << "once\n";
    std::raise(SIGKILL);
  }

  int at;
};

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::train_options run{.scaling = {.num_workers = 2},
                            .run = {.name = "sum",
                                    .storage_path = "runs",
                                    .if_finished = troupe::if_finished::number,
                                    .failure = {.max_failures = 3},
                                    .checkpoint = {.num_to_keep = 2}}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "A run that survives kill -9."});
  run.run.callbacks = {std::make_shared<driver_killer>(cfg.kill_driver_at)};
  auto result = troupe::data_parallel_trainer{add, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  auto history = result.metrics_history();
  if (!history) {
    std::fprintf(stderr, "%s\n", history.error().message.c_str());
    return 1;
  }
  int expected = 0;
  for (auto& report : *history)
    if (report.values[0].number("step") != ++expected) {
      std::fprintf(stderr, "report %d is missing or twice there\n", expected);
      return 1;
    }
  std::printf("%d reports in %d attempts, each there once; the sum is %.0f\n",
              expected, static_cast<int>(result.attempts),
              result.metrics.number("sum"));
}
