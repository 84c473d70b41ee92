// Measures runs on several hosts that need LibTorch: troupe_bench_hosts_torch
// --help.

#include <cstdio>
#include <cstdlib>

#include "bench/hosts/torch_takes.hpp"
#include "bench/measurement.hpp"
#include "bench/program.hpp"
#include "troupe/trainers/init.hpp"

namespace troupe::internal::bench {

std::vector<measurement> measurements() {
  return {
    {"start_hosts_4", "s", {.max_ratio = 1.2}, start_hosts_4},
    {"host_loss_smaller_detection",
     "s",
     {.max_value = 11},
     host_loss_smaller_detection},
    {"host_loss_smaller_attempt", "ms", {}, host_loss_smaller_attempt},
    {"host_loss_smaller_ranks", "ms", {}, host_loss_smaller_ranks},
    {"host_loss_smaller", "ms", {.max_value = 300}, host_loss_smaller},
    {"all_reduce_hosts_25m", "ms", {.max_ratio = 0.75}, all_reduce_hosts},
    {"all_reduce_hosts_wire", "ms", {.max_ratio = 1.15}, all_reduce_hosts_wire},
    {"all_reduce_hosts_tls", "ms", {}, all_reduce_hosts_tls},
    {"all_reduce_hosts_fast", "ms", {}, all_reduce_hosts_fast},
    {"all_reduce_hosts_fast_tls", "ms", {}, all_reduce_hosts_fast_tls},
  };
}

} // namespace troupe::internal::bench

int main(int argc, char** argv) {
  using namespace troupe::internal::bench;
  std::string what = argc > 1 ? argv[1] : "";
  try {
    if (argc == 4 && what == "--all-reduce")
      return run_all_reduce_host(argv[2], std::atoi(argv[3]));
    if (argc == 4 && what == "--bare-start")
      return start_bare_host(argv[2], std::atoi(argv[3]));
    troupe::init(argc, argv); // Agents do not return.
    if (argc == 3 && what == "--start")
      return start_hosts_driver(argv[2]);
    if (argc == 3 && what == "--smaller")
      return host_loss_smaller_driver(argv[2]);
    return run_program(argc, argv, "troupe_bench_hosts_torch");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), e.what());
    return 1;
  }
}
