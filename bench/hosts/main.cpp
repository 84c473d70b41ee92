// Measures runs on several hosts: troupe_bench_hosts --help. Without LibTorch,
// so that hundreds of ranks fit on this machine.

#include <cstdio>
#include <map>

#include "bench/hosts/takes.hpp"
#include "bench/measurement.hpp"
#include "bench/program.hpp"
#include "troupe/trainers/init.hpp"

namespace troupe::internal::bench {

std::vector<measurement> measurements() {
  return {
    {"report_hosts", "us", {.max_ratio = 1.3}, report_hosts},
    {"host_loss_detection", "s", {.max_value = 11}, host_loss_detection},
    {"host_loss_restart", "ms", {.max_value = 300}, host_loss_restart},
    {"barrier_256", "ms", {.max_ratio = 2}, barrier_256},
    {"barrier_256_memory", "MB", {.max_value = 32}, barrier_256_memory},
  };
}

namespace {

/// What this program does on the first host of a measurement.
int be_driver(const std::string& what, const std::string& folder) {
  const std::map<std::string, void (*)(const std::string&)> drivers{
    {"report_hosts", report_hosts_driver},
    {"host_loss", host_loss_driver},
    {"barriers", barriers_driver}};
  try {
    drivers.at(what)(folder);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "the driver of %s: %s\n", what.c_str(), e.what());
    return 1;
  }
}

} // namespace

} // namespace troupe::internal::bench

int main(int argc, char** argv) {
  using namespace troupe::internal::bench;
  troupe::init(argc, argv); // Agents do not return.
  if (argc == 4 && std::string{argv[1]} == "--driver")
    return be_driver(argv[2], argv[3]);
  return run_program(argc, argv, "troupe_bench_hosts");
}
