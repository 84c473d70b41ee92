// A tracker of one's own: writes the reports of a run to `points.txt` in its
// folder, in the line protocol of InfluxDB. No LibTorch.

#include <cstdio>
#include <stdexcept>
#include <stop_token>

#include <troupe/trackers.hpp>
#include <troupe/train.hpp>

struct point_sink : troupe::sink {
  std::string name() const override { return "points"; }
  std::string options() const override { return "{}"; }
  std::string state() const override { return std::to_string(size); }

  troupe::sink_result start(const troupe::tracked_run& run,
                            const std::string& state) override {
    measurement = run.name;
    path = run.path / "points.txt";
    size = state.empty() ? 0 : std::stoull(state);
    over = run.cancelled;
    if (over.stop_requested())
      return leave();
    troupe::fs::ofstream{path, std::ios::app}; // create it if it is missing
    troupe::fs::resize_file(path, size);       // later records are given again
    return {};
  }

  troupe::sink_result
  log(std::span<const troupe::tracker_record> records) override {
    if (over.stop_requested())
      return leave();
    troupe::fs::ofstream out{path, std::ios::app};
    for (auto& record : records)
      if (auto row = std::get_if<troupe::journaled_batch>(&record.content))
        write(out, *row, record.time);
    if (!out.flush())
      return troupe::sink_fails(
        troupe::sink_failure::kind::transient,
        {troupe::ec::storage, "cannot write " + path.string()});
    size = static_cast<std::uint64_t>(out.tellp());
    return {};
  }

  troupe::sink_result finish(troupe::run_status_kind,
                             std::chrono::system_clock::time_point) override {
    return {};
  }

  /// Another driver may have the run from now on, and with it the file.
  static troupe::sink_result leave() {
    return troupe::sink_fails(troupe::sink_failure::kind::transient,
                              {troupe::ec::stopped, "the run is over"});
  }

  /// One line per rank: `curve,rank=0 loss=0.5,step=3 1764000000000000000`.
  void write(std::ostream& out, const troupe::journaled_batch& row,
             std::chrono::system_clock::time_point time) {
    for (std::size_t rank = 0; rank < row.values.size(); ++rank) {
      out << measurement << ",rank=" << rank;
      auto separator = ' ';
      for (auto& [name, value] : row.values[rank])
        if (value.is_number()) {
          out << separator << name << '=' << value.number();
          separator = ',';
        }
      out << ' ' << std::chrono::nanoseconds{time.time_since_epoch()}.count()
          << '\n';
    }
  }

  std::string measurement;
  troupe::fs::path path;
  std::uint64_t size = 0;
  std::stop_token over;
};

struct config {
  int steps = 20;

  TROUPE_FIELDS(steps)

  void validate() const {
    if (steps < 1)
      throw std::invalid_argument{"steps is at least 1"};
  }
};

void train(troupe::train_context& context, const config& cfg) {
  int step = 0;
  troupe::train_state state{{"step", step}};
  context.resume(state);
  while (step < cfg.steps && !context.stop_requested()) {
    ++step;
    context.report({{"step", step}, {"loss", 1.0 / step + context.rank()}},
                   state);
  }
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::train_options run{.scaling = {.num_workers = 2},
                            .run = {.name = "curve",
                                    .storage_path = "runs",
                                    .if_finished = troupe::if_finished::number,
                                    .checkpoint = {.num_to_keep = 1}}};
  run.run.trackers = {
    std::make_shared<troupe::tracker>(std::make_shared<point_sink>())};
  auto cfg = troupe::parse_config<config>(argc, argv, run,
                                          {.about = "A tracker of one's own."});
  auto result = troupe::data_parallel_trainer{train, cfg, run}.fit();
  for (auto& sentence : result.unsent)
    std::fprintf(stderr, "%s\n", sentence.c_str());
  if (result.error)
    return 1; // fit() has printed why
  std::printf("points are in %s\n", (result.path / "points.txt").c_str());
}
