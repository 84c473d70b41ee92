#include <iostream>

#include <troupe/train.hpp>

void loop(troupe::train_context& context) {
  context.report({{"ranks", context.world_size()}});
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  troupe::data_parallel_trainer trainer{
    loop,
    {.scaling = {.num_workers = 2},
     .run = {.name = "two_ranks", .storage_path = "runs", .quiet = true}}};
  auto result = trainer.fit();
  if (result.error) {
    std::cerr << "the run failed: " << result.error->message << '\n';
    return 1;
  }
  std::cout << "trained on " << result.metrics.number("ranks") << " ranks\n";
}
