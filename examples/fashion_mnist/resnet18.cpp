#include "resnet18.hpp"

namespace {

using namespace torch::nn;

Conv2d convolution(int in, int out, int size, int stride) {
  return Conv2d(
    Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

/// Two 3x3 convolutions around a shortcut.
struct basic_block : Module {
  basic_block(int in, int out, int stride)
    : conv1(register_module("conv1", convolution(in, out, 3, stride))),
      bn1(register_module("bn1", BatchNorm2d(out))),
      conv2(register_module("conv2", convolution(out, out, 3, 1))),
      bn2(register_module("bn2", BatchNorm2d(out))) {
    if (stride != 1 || in != out)
      downsample = register_module(
        "downsample",
        Sequential(Conv2d(Conv2dOptions(in, out, 1).stride(stride).bias(false)),
                   BatchNorm2d(out)));
  }

  torch::Tensor forward(torch::Tensor x) {
    auto y = torch::relu(bn1(conv1(x)));
    y = bn2(conv2(y));
    return torch::relu(y + (downsample ? downsample->forward(x) : x));
  }

  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  Sequential downsample{nullptr};
};

} // namespace

resnet18_impl::resnet18_impl(int channels, int classes) {
  conv1_ = register_module(
    "conv1",
    Conv2d(Conv2dOptions(channels, 64, 7).stride(2).padding(3).bias(false)));
  bn1_ = register_module("bn1", BatchNorm2d(64));
  int in = 64;
  for (int i = 0; i < 4; ++i) {
    int out = 64 << i;
    stages_[i] =
      register_module("layer" + std::to_string(i + 1),
                      Sequential(basic_block(in, out, i == 0 ? 1 : 2),
                                 basic_block(out, out, 1)));
    in = out;
  }
  fc_ = register_module("fc", Linear(in, classes));
  for (auto& module : modules(false))
    if (auto conv = module->as<Conv2d>())
      init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
}

torch::Tensor resnet18_impl::forward(torch::Tensor x) {
  x = torch::relu(bn1_(conv1_(x)));
  x = torch::max_pool2d(x, 3, 2, 1);
  for (auto& stage : stages_)
    x = stage->forward(x);
  return fc_(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

std::shared_ptr<resnet18_impl> resnet18(int channels, int classes) {
  return std::make_shared<resnet18_impl>(channels, classes);
}
