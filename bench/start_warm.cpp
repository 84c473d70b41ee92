#include "first_collective.hpp"
#include "numbers.hpp"
#include "takes.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int rounds = 11;

double fit(workplace& place) {
  auto times = place.new_path("times");
  auto run = place.new_run();
  auto start = now();
  troupe_first_collective(std::move(run), times);
  return seconds_to_first_collective(start, times);
}

} // namespace

figure start_warm(workplace& place) {
  std::vector<double> ours, bare;
  fit(place); // the first run of the process
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(fit(place));
    bare.push_back(seconds_of_bare_start(place));
  }
  return {median(ours) * 1e3, median(bare) * 1e3};
}

} // namespace troupe::internal::bench
