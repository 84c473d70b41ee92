#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// One point of a curve.
struct mlflow_metric {
  std::string key;
  double value = 0;
  std::int64_t time_ms = 0; ///< Since 1970.
  std::int64_t step = 0;
};

/// A param or a tag.
struct mlflow_pair {
  std::string key;
  std::string value;

  bool operator==(const mlflow_pair&) const = default;
};

/// What one request of `runs/log-batch` may hold.
struct mlflow_limits {
  std::size_t metrics = 1000;
  std::size_t pairs = 100;
  /// Databricks takes 1 MB; the rest is for what proxies add.
  std::size_t bytes = 900'000;
};

/// The body of one request.
struct mlflow_body {
  std::string json;
  std::size_t items = 0;
};

// The bodies that together log all items in order, each within *limits*. The
// server trusts malformed numbers and stores zeros for them, so values that are
// not finite go as texts and all others as numbers with a finite value.

std::vector<mlflow_body> metric_bodies(const std::string& run_id,
                                       std::span<const mlflow_metric> metrics,
                                       const mlflow_limits& limits = {});

std::vector<mlflow_body> param_bodies(const std::string& run_id,
                                      std::span<const mlflow_pair> params,
                                      const mlflow_limits& limits = {});

std::vector<mlflow_body> tag_bodies(const std::string& run_id,
                                    std::span<const mlflow_pair> tags,
                                    const mlflow_limits& limits = {});

} // namespace troupe
