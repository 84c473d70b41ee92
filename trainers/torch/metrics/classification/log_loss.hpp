#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/trainers/torch/metrics/classification/task.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

struct log_loss_options {
  score_kind scores = score_kind::logits;
  std::optional<std::int64_t> ignore_index = {}; ///< Target to leave out.
};

/// The mean of -log(probability of the target) in nats, 0-d double: the cross
/// entropy loss over all samples. Infinite if a target has probability 0, NaN
/// without elements.
///
/// Scores of a float type are N x classes x ... for targets N x ..., or, with
/// two classes, those of class 1 in the shape of the targets; throws on other
/// shapes. On the CPU also throws on labels out of range; on another device,
/// which updates do not wait for, they make the value NaN.
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
  std::size_t total_;
  std::size_t elements_;
};

/// The perplexity of a language model, exp(log loss): 1 if it always knows the
/// next token, the size of the vocabulary if it guesses. NaN without tokens.
/// Defined as torchmetrics.text.Perplexity of TorchMetrics 1.9.
///
/// Logits are sequences x tokens x vocabulary, targets sequences x tokens;
/// throws on other shapes.
class perplexity : public log_loss {
public:
  /// Leaves out targets that are *ignore_index*, such as padding.
  explicit perplexity(std::optional<std::int64_t> ignore_index = {})
    : log_loss("perplexity", {.ignore_index = ignore_index}) {}

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;
};

} // namespace troupe
