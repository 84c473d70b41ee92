#pragma once

#include <torch/torch.h>

/// ResNet-18 (He et al., 2015) with the names of torchvision's, so that state
/// dicts match. Images float32 `[n, channels, h, w]` in, logits `[n, classes]`
/// out.
class resnet18_impl : public torch::nn::Module {
public:
  resnet18_impl(int channels, int classes);

  torch::Tensor forward(torch::Tensor x);

private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  torch::nn::Sequential stages_[4];
  torch::nn::Linear fc_{nullptr};
};

std::shared_ptr<resnet18_impl> resnet18(int channels, int classes);
