// Reads a run back from its folder, finished or still running: its outcome, its
// reports, its best checkpoint. No LibTorch. read_results.py does the same in
// Python.

#include <cstdio>

#include <troupe/train.hpp>

struct config {
  troupe::fs::path read; // the folder of a run; none: one is made first

  TROUPE_FIELDS(read)
};

/// A loss that falls, and rises again at the end.
void pretend(troupe::train_context& context, const config&) {
  for (int epoch = 0; epoch < 6; ++epoch) {
    auto distance = 4 - epoch;
    auto loss = 0.1 + 0.05 * distance * distance + 0.01 * context.rank();
    context.report(
      {{"epoch", epoch}, {"loss", loss}},
      [&](troupe::staged_checkpoint& files) { files.save("epoch", epoch); });
  }
}

int show(const troupe::fs::path& folder) {
  auto result = troupe::result::from_path(folder);
  if (!result) {
    std::fprintf(stderr, "reading_results: %s\n",
                 result.error().message.c_str());
    return 1;
  }
  std::printf(
    "%s: %s after %d attempt(s), last %s\n", folder.filename().c_str(),
    std::string{to_string(result->status)}.c_str(),
    static_cast<int>(result->attempts), to_string(result->metrics).c_str());
  auto history = result->metrics_history();
  if (!history) {
    std::fprintf(stderr, "reading_results: %s\n",
                 history.error().message.c_str());
    return 1;
  }
  for (auto& report : *history) {
    std::printf("report %d%s%s\n", static_cast<int>(report.index),
                report.checkpoint.empty() ? "" : " with ",
                report.checkpoint.c_str());
    for (auto& [name, x] : troupe::aggregate(report.values))
      std::printf("  %-12s mean %.4g, from %.4g to %.4g\n", name.c_str(),
                  x.mean, x.min, x.max);
  }
  for (auto& line : history->damaged)
    std::fprintf(stderr, "reading_results: %s\n", line.c_str());
  // What is in its files only the program that saved them knows.
  if (auto best = result->best_checkpoint())
    std::printf("the best checkpoint is %s, with %s\n",
                best->data.name().c_str(), to_string(best->values).c_str());
  return 0;
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::train_options run{
    .scaling = {.num_workers = 2},
    .run = {.storage_path = "runs",
            .checkpoint = {.num_to_keep = 2,
                           .checkpoint_score_attribute = "loss",
                           .checkpoint_score_order = troupe::score_order::min},
            .quiet = true}};
  auto cfg = troupe::parse_config<config>(
    argc, argv, run, {.about = "Reads a run back from its folder."});
  if (cfg.read.empty()) {
    auto result = troupe::data_parallel_trainer{pretend, cfg, run}.fit();
    if (result.error) {
      std::fprintf(stderr, "reading_results: %s\n",
                   result.error->message.c_str());
      return 1;
    }
    cfg.read = result.path;
  }
  return show(cfg.read);
}
