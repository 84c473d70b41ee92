#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "metric_ranks.hpp"
#include "split.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe::internal::test {

/// A rank's metric, type-erased.
struct split_metric {
  std::function<void(slice)> update;
  std::function<std::vector<at::Tensor>()> compute;
  std::function<tensor_map()> state;
};

/// A metric over samples that can be sliced.
struct splittable {
  std::string name;
  long samples;
  /// A metric of one rank, over the given plane or that of the train loop.
  std::function<split_metric(std::optional<torch_data_plane>)> make;

  friend void PrintTo(const splittable& x, std::ostream* out) {
    *out << x.name;
  }
};

/// Every metric.
std::vector<splittable> all_splittable();

} // namespace troupe::internal::test
