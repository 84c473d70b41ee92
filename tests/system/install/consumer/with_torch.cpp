#include <exception>
#include <iostream>

#include <troupe/trainers/torch/groups/c10d_groups.hpp>
#include <troupe/trainers/torch/groups/torch_config.hpp>

int main() {
  std::cout << "gradients over " << to_string(troupe::torch_config{}.backend)
            << '\n';
  // What a rank with a GPU does.
  try {
    troupe::make_nccl_group({}, 0, 2, c10::kCPU, std::chrono::seconds{1});
  } catch (const std::exception& e) {
    std::cout << e.what() << '\n';
  }
}
