#include <chrono>
#include <exception>
#include <iostream>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <troupe/torch.hpp>

// Of trainers/torch/groups/c10d_groups.hpp, which is not installed: without a
// GPU nothing that users name asks for NCCL.
namespace troupe::internal {
c10::intrusive_ptr<c10d::Backend>
make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, c10::Device device,
                std::chrono::milliseconds timeout);
} // namespace troupe::internal

int main() {
  std::cout << "gradients over " << to_string(troupe::torch_config{}.backend)
            << '\n';
  // What a rank with a GPU does.
  try {
    troupe::internal::make_nccl_group({}, 0, 2, c10::kCPU,
                                      std::chrono::seconds{1});
  } catch (const std::exception& e) {
    std::cout << e.what() << '\n';
  }
}
