// Measures Troupe next to bare programs: troupe_bench --help.

#include <cstring>

#include "program.hpp"
#include "troupe/trainers/init.hpp"
#ifdef TROUPE_BENCH_TORCH
#include "first_collective.hpp"
#endif

int main(int argc, char** argv) {
  using namespace troupe::internal::bench;
  [[maybe_unused]] auto is_child = [&](const char* name) {
    return argc == 5 && std::strcmp(argv[1], "--child") == 0
           && std::strcmp(argv[2], name) == 0;
  };
#ifdef TROUPE_BENCH_TORCH
  if (is_child("bare_start"))
    return bare_start_child(argv[3], argv[4]);
#endif
  troupe::init(argc, argv);
#ifdef TROUPE_BENCH_TORCH
  if (is_child("start_cold"))
    return start_cold_child(argv[3], argv[4]);
#endif
  return run_program(argc, argv, "troupe_bench");
}
