// The smallest run: two rank processes that count, report and keep a
// checkpoint. No LibTorch.

#include <cstdio>
#include <stdexcept>

#include <troupe/train.hpp>

struct config {
  int steps = 5;

  TROUPE_FIELDS(steps)

  void validate() const {
    if (steps < 1)
      throw std::invalid_argument{"steps is at least 1"};
  }
};

/// Counts to `steps`; resumes from the last checkpoint.
void count(troupe::train_context& context, const config& cfg) {
  int step = 0;
  troupe::train_state state{{"step", step}};
  context.resume(state);
  while (step < cfg.steps && !context.stop_requested()) {
    ++step;
    std::printf("rank %d of %d counts %d\n", context.rank(),
                context.world_size(), step);
    context.report({{"step", step}, {"rank", context.rank()}}, state);
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::train_options run{
    .scaling = {.num_workers = 2},
    .run = {.storage_path = "runs", .checkpoint = {.num_to_keep = 2}}};
  auto cfg = troupe::parse_config<config>(argc, argv, run,
                                          {.about = "The smallest run."});
  auto result = troupe::data_parallel_trainer{count, cfg, run}.fit();
  if (result.error)
    return 1; // fit() has printed why
  std::printf("counted to %s, the last checkpoint is %s\n",
              to_string(result.metrics.at("step")).c_str(),
              result.checkpoint->path().c_str());
}
