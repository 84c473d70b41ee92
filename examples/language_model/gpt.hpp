#pragma once

#include <cstdint>
#include <string>

#include <torch/torch.h>

#include <troupe/train.hpp>

/// The size of a `gpt`.
struct gpt_options {
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t context = 128; ///< Tokens that it sees at once.

  TROUPE_FIELDS(layers, heads, width, context)
};

/// GPT-2 (Radford et al., 2019) over bytes: learned positions, pre-norm blocks,
/// and a head that shares its weights with the embedding. Tokens int64
/// `[n, t]`, t at most the context, in; logits `[n, t, 256]` out.
class gpt_impl : public torch::nn::Module {
public:
  explicit gpt_impl(const gpt_options& options);

  torch::Tensor forward(torch::Tensor tokens);

  /// *prompt*, and *count* bytes that may follow it. A lower *temperature*
  /// keeps closer to what is likely; the same *seed* writes the same text.
  std::string write(std::string prompt, int count, double temperature,
                    std::uint64_t seed);

private:
  gpt_options options_;
  torch::nn::Embedding tokens_{nullptr};
  torch::nn::Embedding positions_{nullptr};
  torch::nn::Sequential blocks_;
  torch::nn::LayerNorm norm_{nullptr};
};

std::shared_ptr<gpt_impl> gpt(const gpt_options& options);
