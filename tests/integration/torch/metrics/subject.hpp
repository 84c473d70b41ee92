#pragma once

#include <functional>
#include <string>
#include <utility>

#include "table.hpp"
#include "troupe/trainers/torch/metrics/aggregation.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe::internal::test {

/// Runs a type-erased metric. Each call starts from a new one.
struct subject {
  /// What `forward` returns for one batch.
  std::function<at::Tensor(const metric_batch&)> forward;
  /// The value of *batches*.
  std::function<at::Tensor(const std::vector<metric_batch>& batches)> total;
  /// The value of one metric per batch, merged in order; empty if that value is
  /// another one.
  std::function<at::Tensor(const std::vector<metric_batch>& batches)> merged;
};

/// Runs copies of *fresh*. *call* takes a metric, whether to forward, and a
/// batch; it returns what `forward` did.
template <class Metric, class Call>
subject make_subject(Metric fresh, Call call) {
  auto updated = [fresh, call](const std::vector<metric_batch>& batches) {
    auto metric = fresh;
    for (auto& batch : batches)
      call(metric, false, batch);
    return metric;
  };
  return {[fresh, call](const metric_batch& batch) {
            auto metric = fresh;
            return call(metric, true, batch);
          },
          [updated](const std::vector<metric_batch>& batches) {
            return updated(batches).compute();
          },
          [fresh, updated](const std::vector<metric_batch>& batches) {
            auto result = fresh;
            for (auto& batch : batches)
              result.merge(updated({batch}));
            return result.compute();
          }};
}

/// Runs copies of a metric of predictions and targets.
template <std::derived_from<prediction_metric> Metric>
subject subject_of(Metric fresh) {
  return make_subject(std::move(fresh), [](Metric& metric, bool forward,
                                           const metric_batch& batch) {
    if (forward)
      return metric.forward(batch.at(0), batch.at(1));
    metric.update(batch.at(0), batch.at(1));
    return at::Tensor{};
  });
}

/// Runs copies of a metric of values, some of which take weights.
template <std::derived_from<value_metric> Metric>
subject subject_of(Metric fresh) {
  return make_subject(std::move(fresh), [](Metric& metric, bool forward,
                                           const metric_batch& batch) {
    if constexpr (std::is_same_v<Metric, mean_metric>) {
      if (batch.size() == 2 && forward)
        return metric.forward(batch[0], batch[1]);
      if (batch.size() == 2) {
        metric.update(batch[0], batch[1]);
        return at::Tensor{};
      }
    }
    if (forward)
      return metric.forward(batch.at(0));
    metric.update(batch.at(0));
    return at::Tensor{};
  });
}

/// Metrics by their names in TorchMetrics: of labels, and of numbers.
using subject_factories =
  std::map<std::string, std::function<subject(const nlohmann::json&)>>;
subject_factories classification_subjects();
subject_factories number_subjects();

} // namespace troupe::internal::test
