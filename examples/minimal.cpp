// The smallest run: two rank processes that count, report and keep a
// checkpoint. No LibTorch.
//
//   minimal [storage folder]

#include <cstdio>
#include <fstream>
#include <string>

#include <troupe/train.hpp>

struct config {
  int steps = 5;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(steps));
  }
};

/// Counts to `steps`; resumes from the last checkpoint.
void count(troupe::train_context& context, const config& cfg) {
  int step = 0;
  if (auto last = context.checkpoint())
    std::ifstream{(last->path() / "step.txt").string()} >> step;
  while (step < cfg.steps && !context.stop_requested()) {
    ++step;
    std::printf("rank %d of %d counts %d\n", context.rank(),
                context.world_size(), step);
    troupe::metrics values{{"step", step}, {"rank", context.rank()}};
    if (context.rank() != 0) {
      context.report(values);
      continue;
    }
    auto files = context.new_checkpoint();
    std::ofstream{(files.path() / "step.txt").string()} << step << '\n';
    context.report(values, std::move(files));
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  auto wants_help = argc == 2 && argv[1] == std::string{"--help"};
  if (argc > 2 || (argc == 2 && (argv[1][0] == '-' || argv[1][0] == '\0'))) {
    std::fprintf(wants_help ? stdout : stderr,
                 "usage: minimal [storage folder]\n");
    return wants_help ? 0 : 2;
  }
  troupe::data_parallel_trainer trainer{
    count,
    config{},
    {.scaling = {.num_workers = 2},
     .run = {.storage_path = argc > 1 ? argv[1] : "runs",
             .checkpoint = {.num_to_keep = 2}}}};
  auto result = trainer.fit();
  if (result.error)
    return 1; // fit() has printed why
  std::printf("counted to %s, the last checkpoint is %s\n",
              to_string(result.metrics.at("step")).c_str(),
              result.checkpoint->path().c_str());
}
