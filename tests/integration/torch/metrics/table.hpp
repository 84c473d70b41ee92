#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

namespace troupe::internal::test {

/// The arguments of one update.
using metric_batch = std::vector<at::Tensor>;

/// One case of tests/data/torchmetrics.json. A value is a number, lists of
/// numbers, or "throws"; NaN and the infinities are strings.
struct table_case {
  std::string name;
  std::string metric;     ///< The class of torchmetrics.
  nlohmann::json options; ///< Its arguments by name.
  std::vector<metric_batch> batches;
  std::vector<nlohmann::json> forward; ///< Values of each batch alone.
  nlohmann::json value;                ///< That of all batches.
};

/// All cases, in the order of the file. Throws what does not let it be read.
const std::vector<table_case>& metric_table();

/// Where *actual* differs from *expected* by more than 1e-6 of it (or 1e-9 if
/// it is near zero), or in shape; empty if it does not.
std::string difference(const at::Tensor& actual,
                       const nlohmann::json& expected);

} // namespace troupe::internal::test
