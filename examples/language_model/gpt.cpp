#include "gpt.hpp"

#include <cmath>

#include <ATen/CPUGeneratorImpl.h>

namespace {

using namespace torch::nn;

constexpr std::int64_t vocabulary = 256; // bytes

LayerNorm layer_norm(std::int64_t width) {
  return LayerNorm(LayerNormOptions({width}));
}

/// Self-attention, of each position to itself and those before it.
struct attention : Module {
  attention(std::int64_t width, std::int64_t heads)
    : heads(heads), qkv(register_module("qkv", Linear(width, 3 * width))),
      out(register_module("out", Linear(width, width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    auto n = x.size(0), length = x.size(1), width = x.size(2);
    auto parts = qkv(x)
                   .view({n, length, 3, heads, width / heads})
                   .permute({2, 0, 3, 1, 4});
    auto seen = torch::scaled_dot_product_attention(
      parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0,
      /*is_causal=*/true);
    return out(seen.transpose(1, 2).reshape({n, length, width}));
  }

  std::int64_t heads;
  Linear qkv, out;
};

struct block : Module {
  block(std::int64_t width, std::int64_t heads)
    : norm1(register_module("norm1", layer_norm(width))),
      look(register_module("attention",
                           std::make_shared<attention>(width, heads))),
      norm2(register_module("norm2", layer_norm(width))),
      in(register_module("in", Linear(width, 4 * width))),
      out(register_module("out", Linear(4 * width, width))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = x + look->forward(norm1(x));
    return x + out(torch::gelu(in(norm2(x)), "tanh"));
  }

  LayerNorm norm1;
  std::shared_ptr<attention> look;
  LayerNorm norm2;
  Linear in, out;
};

} // namespace

gpt_impl::gpt_impl(const gpt_options& options) : options_(options) {
  auto width = options.width;
  tokens_ = register_module("tokens", Embedding(vocabulary, width));
  positions_ = register_module("positions", Embedding(options.context, width));
  for (int i = 0; i < options.layers; ++i)
    blocks_->push_back(block{width, options.heads});
  register_module("blocks", blocks_);
  norm_ = register_module("norm", layer_norm(width));
  // As in GPT-2: the more terms a residual sum has, the smaller each is.
  torch::NoGradGuard no_grad;
  auto terms = static_cast<double>(2 * options.layers);
  for (auto& x : named_parameters())
    if (x.key().ends_with("bias"))
      x->zero_();
    else if (x->dim() == 2)
      x->normal_(0, x.key().ends_with("out.weight") ? 0.02 / std::sqrt(terms)
                                                    : 0.02);
}

torch::Tensor gpt_impl::forward(torch::Tensor tokens) {
  auto x = tokens_(tokens)
           + positions_(torch::arange(tokens.size(1), tokens.options()));
  return torch::linear(norm_(blocks_->forward(x)), tokens_->weight);
}

std::string gpt_impl::write(std::string prompt, int count, double temperature,
                            std::uint64_t seed) {
  torch::NoGradGuard no_grad;
  auto random = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  std::vector<std::int64_t> text;
  for (unsigned char x : prompt)
    text.push_back(x);
  auto where = tokens_->weight.device();
  for (int i = 0; i < count; ++i) {
    auto seen = torch::tensor(text).slice(0, -options_.context).unsqueeze(0);
    auto logits = forward(seen.to(where))[0][-1].to(torch::kCPU);
    auto next = torch::multinomial((logits / temperature).softmax(0), 1,
                                   /*replacement=*/false, random);
    text.push_back(next.item<std::int64_t>());
  }
  return {text.begin(), text.end()};
}

std::shared_ptr<gpt_impl> gpt(const gpt_options& options) {
  return std::make_shared<gpt_impl>(options);
}
