// A loop with a capture: refused in rank processes, welcome in this one.

#include <troupe/train.hpp>

int main() {
  int steps = 3;
  auto loop = [&steps](troupe::train_context&) { ++steps; };
#ifdef WRAPPED
  troupe::data_parallel_trainer trainer{troupe::in_process_loop{loop}};
#else
  troupe::data_parallel_trainer trainer{loop};
#endif
}
