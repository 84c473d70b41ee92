#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "metric_ranks.hpp"
#include "split.hpp"
#include "troupe/trainers/torch/files/tensor_map.hpp"

namespace troupe::test {

/// A rank's metric whose type is forgotten.
struct split_metric {
  std::function<void(slice)> update;
  std::function<std::vector<at::Tensor>()> compute;
  std::function<tensor_map()> state;
};

/// A metric over samples that any slice can be taken of.
struct splittable {
  std::string name;
  long samples;
  /// A metric of one rank, over the train loop's or the given plane.
  std::function<split_metric(std::optional<torch_data_plane>)> make;

  friend void PrintTo(const splittable& x, std::ostream* out) {
    *out << x.name;
  }
};

/// Every metric that there is.
std::vector<splittable> all_splittable();

} // namespace troupe::test
