#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"

// As LibTorch's, which takes long to compile; a test of LibTorch compares them.
struct tensor {
  double item() const;
  long numel() const;
  std::vector<long> sizes() const;
};

troupe::metrics values_of(const tensor& loss) {
  return {{"epoch", 1}, {"loss", loss}};
}
