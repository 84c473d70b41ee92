// What the compiler says about configs whose fields would be lost, or cannot be
// distinguished from the options of a run.

#include <troupe/train.hpp>

struct optimizer {
  double lr = 0.1;
  TROUPE_FIELDS(lr)
};

#ifdef INHERITED

struct config : optimizer {
  int epochs = 3;
};

#elif defined(INHERITED_AND_HIDDEN)

struct config : optimizer {
  int epochs = 3;
  TROUPE_FIELDS(epochs)
};

#else

struct config {
  int workers = 3;
  TROUPE_FIELDS(workers)
};

#endif

int main(int argc, char** argv) {
  troupe::train_options run;
  troupe::parse_config<config>(argc, argv, run);
}
