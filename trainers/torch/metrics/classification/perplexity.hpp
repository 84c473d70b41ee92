#pragma once

#include "troupe/trainers/torch/metrics/classification/log_loss.hpp"

namespace troupe {

/// How many tokens a language model wavers between: exp of the log loss. NaN
/// without tokens.
///
/// Logits are sequences x tokens x vocabulary, targets sequences x tokens. A
/// target that is *ignore_index* (padding) does not count.
class perplexity : public log_loss {
public:
  explicit perplexity(std::optional<std::int64_t> ignore_index = {})
    : log_loss("perplexity", {.ignore_index = ignore_index}) {}

private:
  void add(const at::Tensor& preds, const at::Tensor& target) override;
  at::Tensor result() const override;
};

} // namespace troupe
