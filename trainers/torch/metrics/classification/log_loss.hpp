#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/trainers/torch/metrics/classification/classification_task.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

struct log_loss_options {
  score_kind scores = score_kind::logits;
  std::optional<std::int64_t> ignore_index = {}; ///< Target that never counts.
};

/// The mean of -log(probability of the target), in nats: what cross entropy
/// loss is over all samples. Infinite if a target was held impossible, NaN
/// without elements.
///
/// Scores of a float type are N x classes x ... for targets N x ..., or, of two
/// classes, those of class 1 in the shape of the targets. Labels out of range
/// are refused on the CPU; on another device they make the value NaN, for a
/// closer look would wait for it.
class log_loss : public prediction_metric {
public:
  explicit log_loss(log_loss_options options = {})
    : log_loss("log_loss", options) {}

  std::string name() const override { return name_; }
  std::string state_key() const override;

protected:
  log_loss(std::string name, log_loss_options options);

  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;

  /// Accumulates *scores*, elements x classes, of 1-d labels.
  void add_rows(const at::Tensor& scores, const at::Tensor& target);

private:
  std::string name_;
  log_loss_options options_;
};

} // namespace troupe
