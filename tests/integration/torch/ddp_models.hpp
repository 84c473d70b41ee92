#pragma once

#include <torch/torch.h>

// Small models, each with the shape of one problem of data-parallel training.
namespace troupe::internal::test {

struct mlp : torch::nn::Module {
  mlp()
    : first(register_module("first", torch::nn::Linear(20, 64))),
      second(register_module("second", torch::nn::Linear(64, 80))),
      third(register_module("third", torch::nn::Linear(80, 5))) {}
  at::Tensor forward(const at::Tensor& x) {
    return third(torch::relu(second(torch::relu(first(x)))));
  }
  torch::nn::Linear first, second, third;
};

struct convnet : torch::nn::Module {
  convnet()
    : convolution(register_module(
      "convolution",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)))),
      norm(register_module("norm", torch::nn::BatchNorm2d(8))),
      head(register_module("head", torch::nn::Linear(8 * 6 * 6, 5))) {}
  at::Tensor forward(const at::Tensor& x) {
    auto y = torch::relu(norm(convolution(x.view({-1, 1, 6, 6}))));
    return head(y.flatten(1));
  }
  torch::nn::Conv2d convolution;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear head;
};

/// A branch that only some ranks take.
struct branches : torch::nn::Module {
  branches()
    : trunk(register_module("trunk", torch::nn::Linear(20, 16))),
      branch(register_module("branch", torch::nn::Linear(16, 16))),
      head(register_module("head", torch::nn::Linear(16, 5))) {}
  at::Tensor forward(const at::Tensor& x, bool take_branch) {
    auto y = torch::relu(trunk(x));
    return head(take_branch ? torch::relu(branch(y)) : y);
  }
  torch::nn::Linear trunk, branch, head;
};

/// One layer twice, one never.
struct reuse : torch::nn::Module {
  reuse()
    : trunk(register_module("trunk", torch::nn::Linear(20, 16))),
      twice(register_module("twice", torch::nn::Linear(16, 16))),
      never(register_module("never", torch::nn::Linear(16, 16))),
      head(register_module("head", torch::nn::Linear(16, 5))) {}
  at::Tensor forward(const at::Tensor& x) {
    return head(torch::tanh(twice(torch::tanh(twice(trunk(x))))));
  }
  torch::nn::Linear trunk, twice, never, head;
};

struct words : torch::nn::Module {
  words()
    : table(register_module(
      "table",
      torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 8).sparse(true)))),
      head(register_module("head", torch::nn::Linear(8, 5))) {}
  at::Tensor forward(const at::Tensor& indices) {
    return head(table(indices).mean(1));
  }
  torch::nn::Embedding table;
  torch::nn::Linear head;
};

/// A frozen layer, and a weight under two names.
struct tied : torch::nn::Module {
  tied()
    : frozen(register_module("frozen", torch::nn::Linear(20, 20))),
      left(register_module("left", torch::nn::Linear(20, 20))),
      right(register_module("right", left)),
      head(register_module("head", torch::nn::Linear(20, 5))) {
    for (auto& x : frozen->parameters())
      x.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) {
    return head(torch::tanh(right(torch::tanh(left(frozen(x))))));
  }
  torch::nn::Linear frozen, left, right, head;
};

/// Two outputs in a struct of its own, of which a loss may use one.
struct two_heads : torch::nn::Module {
  struct outputs {
    at::Tensor main;
    at::Tensor extra;
  };
  two_heads()
    : trunk(register_module("trunk", torch::nn::Linear(20, 16))),
      main(register_module("main", torch::nn::Linear(16, 5))),
      extra(register_module("extra", torch::nn::Linear(16, 3))) {}
  outputs forward(const at::Tensor& x) {
    auto y = torch::relu(trunk(x));
    return {main(y), extra(y)};
  }
  torch::nn::Linear trunk, main, extra;
};

template <class F>
void for_each_tensor(two_heads::outputs& x, F&& f) {
  f(x.main);
  f(x.extra);
}

} // namespace troupe::internal::test
