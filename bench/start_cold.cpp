#include "first_collective.hpp"
#include "numbers.hpp"
#include "processes.hpp"
#include "takes.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int rounds = 9;

/// Runs this program as *child* with its own folder or file *name*.
double execute(workplace& place, const std::string& child,
               const std::string& name) {
  auto times = place.new_path("times");
  auto start = now();
  run_self({"--child", child, place.new_path(name), times});
  return seconds_to_first_collective(start, times);
}

} // namespace

figure start_cold(workplace& place) {
  std::vector<double> ours, bare;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(execute(place, "start_cold", "storage"));
    bare.push_back(execute(place, "bare_start", "store"));
  }
  return {median(ours), median(bare)};
}

} // namespace troupe::internal::bench
