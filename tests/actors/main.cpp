#include <gtest/gtest.h>

#include "tests/support/answer_oldest.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Before the first actor system.
  troupe::register_messages<caf::id_block::actor_tests>();
  return RUN_ALL_TESTS();
}
