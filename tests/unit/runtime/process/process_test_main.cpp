#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/unit/runtime/process/process_modes.hpp"
#include "tests/unit/runtime/process/rank_commands.hpp"
#include "troupe/runtime/process/spawner.hpp"

int main(int argc, char** argv) {
  using namespace troupe::internal::test;
  if (std::getenv(no_spawner_variable) && std::getenv("TROUPE_SPAWNER"))
    return 5;
  ::putenv(const_cast<char*>(constant_variable));
  const char* mode = std::getenv(mode_variable);
  if (mode)
    prepare_mode(mode);
  if (auto made = troupe::internal::init_spawner(run_rank_command); !made) {
    std::cerr << made.error().message << std::endl;
    return EXIT_FAILURE;
  }
  if (mode)
    return run_mode(mode);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
