// A classifier that is trained on whatever hosts there are, so that its weights
// do not depend on them.
//
//   training_run --folder FOLDER [--pause_at STEP] [--hold_at STEP --full N]
//                [options of a run]
//
// Each rank has every world-th sample. Gradients are added up as whole numbers,
// whose sum is the same in any order. Ranks write lines to the FIFO `events` in
// FOLDER. At the step `pause_at` of the first attempt they wait for a fault.
// From `hold_at` on, worlds with fewer ranks than `full` report without
// training until they are asked to leave.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include <troupe/train.hpp>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/rank_link.hpp"

namespace {

using troupe::internal::concat;

struct plan {
  std::string folder = ".";
  int steps = 60;
  int samples = 240;
  int pause_at = -1;
  int hold_at = -1;
  int full = 8;
  TROUPE_FIELDS(folder, steps, samples, pause_at, hold_at, full)
};

/// Weights of two features and a bias; whole numbers of 2^-20.
using weights = std::array<std::int64_t, 3>;

constexpr double unit = 1 << 20;

struct sample {
  double x[3];
  bool is_right;
};

/// On a spiral around a line that the classifier has to find.
sample sample_at(int i) {
  auto angle = 2.4 * i;
  auto radius = 0.5 + 0.01 * (i % 97);
  auto x = radius * std::cos(angle);
  auto y = radius * std::sin(angle);
  return {{x, y, 1.0}, 0.8 * x - 0.6 * y + 0.2 > 0};
}

double score_of(const weights& w, const sample& s) {
  auto sum = 0.0;
  for (std::size_t i = 0; i < w.size(); ++i)
    sum += static_cast<double>(w[i]) / unit * s.x[i];
  return 1 / (1 + std::exp(-sum));
}

double accuracy_of(const weights& w, int samples) {
  auto right = 0;
  for (int i = 0; i < samples; ++i)
    right += (score_of(w, sample_at(i)) > 0.5) == sample_at(i).is_right;
  return static_cast<double>(right) / samples;
}

void tell(const plan& x, const std::string& line) {
  auto text = line + '\n';
  auto pipe = ::open((x.folder + "/events").c_str(), O_WRONLY | O_CLOEXEC);
  (void) !::write(pipe, text.data(), text.size());
  ::close(pipe);
}

/// One step of gradient descent over all samples.
void train_step(troupe::train_context& context, const plan& x, int step,
                weights& w) {
  weights mine{};
  for (int i = context.rank(); i < x.samples; i += context.world_size()) {
    auto s = sample_at(i);
    auto slope = score_of(w, s) - (s.is_right ? 1 : 0);
    for (std::size_t j = 0; j < w.size(); ++j)
      mine[j] += std::llround(slope * s.x[j] * unit);
  }
  auto& store = troupe::internal::rank_access{context}.link().store();
  auto key = [step](std::size_t j) { return concat("sum/", step, '/', j); };
  for (std::size_t j = 0; j < w.size(); ++j)
    store.add(key(j), mine[j]).value();
  context.barrier();
  for (std::size_t j = 0; j < w.size(); ++j)
    w[j] -= store.add(key(j), 0).value() * 4 / x.samples;
}

void loop(troupe::train_context& context, const plan& x) {
  auto attempt = static_cast<int>(context.attempt());
  auto world = context.world_size();
  auto step = 0;
  weights w{};
  if (auto& from = context.checkpoint()) {
    std::ifstream in{(from->path() / "state").string()};
    in >> step >> w[0] >> w[1] >> w[2];
  }
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  tell(x, concat("rank ", attempt, ' ', context.rank(), ' ', world, ' ', host,
                 ' ', step));
  for (auto tells_hold = false; step < x.steps && !context.stop_requested();) {
    if (attempt == 0 && step == x.pause_at)
      for (tell(x, "pauses");;)
        ::pause();
    if (x.hold_at < 0 || step < x.hold_at || world >= x.full)
      train_step(context, x, step++, w);
    else if (context.rank() == 0 && !std::exchange(tells_hold, true))
      tell(x, "holds");
    troupe::metrics values{{"step", step},
                           {"world", world},
                           {"accuracy", accuracy_of(w, x.samples)}};
    if (context.rank() != 0) {
      context.report(values);
      continue;
    }
    auto files = context.new_checkpoint();
    std::ofstream{(files.path() / "state").string()}
      << step << ' ' << w[0] << ' ' << w[1] << ' ' << w[2] << '\n';
    context.report(values, std::move(files));
  }
  if (context.rank() == 0 && step == x.steps)
    tell(x, concat("final ", world, ' ', w[0], ' ', w[1], ' ', w[2], ' ',
                   std::to_string(accuracy_of(w, x.samples))));
}

} // namespace

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::train_options options;
  options.run.failure.max_failures = 0;
  options.run.checkpoint.num_to_keep = 2;
  auto x = troupe::parse_config<plan>(argc, argv, options);
  auto result = troupe::data_parallel_trainer{loop, x, options}.fit();
  if (result.status == troupe::run_status_kind::preempted)
    return 75;
  return result.error ? 3 : 0;
}
