#include <gtest/gtest.h>

#include <troupe/train.hpp>

#include "tests/integration/run/listener.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  if (argc > 3 && std::string{argv[1]} == "--victim")
    return troupe::internal::test::be_victim(argv[2], argv[3]);
  if (argc > 4 && std::string{argv[1]} == "--listener")
    return troupe::internal::test::be_listener(argv[2], argv[3], argv[4]);
  if (argc > 2 && std::string{argv[1]} == "--on-gpus")
    return troupe::internal::test::run_on_gpus(argv[2]);
  if (argc > 2 && std::string{argv[1]} == "--stop-late")
    return troupe::internal::test::stop_start_late(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
