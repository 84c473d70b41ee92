#include "troupe/trainers/torch/reproducibility.hpp"

#include <cstdlib>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

namespace troupe {

void enable_reproducibility(std::uint64_t seed) {
  // Both libraries read these once, at their first call. The user's own values
  // are kept.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  ::setenv("MKL_CBWR", "AUTO,STRICT", /*overwrite=*/0);
  at::manual_seed(seed);
  std::srand(static_cast<unsigned>(seed));
  auto& settings = at::globalContext();
  settings.setDeterministicAlgorithms(true, /*warn_only=*/false);
  settings.setDeterministicCuDNN(true);
  settings.setBenchmarkCuDNN(false);
  // Sums are split by thread: without this, MKL may choose fewer threads.
  at::set_num_threads(at::get_num_threads());
}

} // namespace troupe
