#include "bare_group.hpp"

#include <ATen/Functions.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "numbers.hpp"
#include "processes.hpp"
#include "shared_numbers.hpp"

namespace troupe::internal::bench {

c10::intrusive_ptr<c10d::ProcessGroup>
bare_gloo_group(const std::string& path, int rank, int ranks,
                const std::string& address) {
  auto store = c10::make_intrusive<c10d::FileStore>(path, ranks);
  auto gloo =
    make_gloo_group(store, rank, ranks, address, std::chrono::minutes{1});
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, ranks);
  group->setBackend(at::kCPU, c10d::ProcessGroup::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::GLOO);
  return group;
}

void all_reduce(c10d::ProcessGroup& group, at::Tensor& x) {
  std::vector<at::Tensor> tensors{x};
  group.allreduce(tensors)->wait();
}

void bare_first_collective(const std::string& store, const std::string& times) {
  run_bare_ranks(2, [&](int rank) {
    shared_numbers numbers{times, 2};
    auto group = bare_gloo_group(store, rank, 2);
    auto x = at::ones({1});
    all_reduce(*group, x);
    numbers[static_cast<std::size_t>(rank)] = now();
  });
}

} // namespace troupe::internal::bench
