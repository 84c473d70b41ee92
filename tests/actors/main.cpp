#include <gtest/gtest.h>

#include "troupe/actors/protocol/register_messages.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  troupe::register_messages(); // before the first actor system
  return RUN_ALL_TESTS();
}
