// A train loop that lies in a library of its own.

#include "troupe/trainers/train_context.hpp"

extern "C" __attribute__((visibility("default"))) void
loop_of_a_library(troupe::train_context& context) {
  (void) context.rank();
}
