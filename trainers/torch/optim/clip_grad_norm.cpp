#include "troupe/trainers/torch/optim/clip_grad_norm.hpp"

#include <algorithm>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& parameters,
                          double max_norm, double norm_type) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined())
      continue;
    if (gradient.is_sparse())
      throw train_error{{ec::invalid_argument,
                         "clip_grad_norm does not clip sparse gradients"}};
    gradients.push_back(gradient.detach());
  }
  if (gradients.empty())
    return at::zeros({});
  auto norms = at::_foreach_norm(gradients, norm_type);
  // In a narrower one a norm may be infinite, and all gradients become zero.
  auto type = norms.front().scalar_type();
  for (auto& norm : norms)
    type = c10::promoteTypes(type, norm.scalar_type());
  for (auto& norm : norms)
    norm = norm.to(norms.front().options().dtype(type));
  auto total = at::linalg_vector_norm(at::stack(norms), norm_type);
  // Multiplying by one where nothing is to be clipped saves asking the device.
  auto factor = at::clamp_max(max_norm / (total + 1e-6), 1.0);
  auto on_one_device = std::ranges::all_of(gradients, [&](auto& x) {
    return x.device() == gradients.front().device();
  });
  if (on_one_device)
    at::_foreach_mul_(gradients, factor);
  else
    for (auto& gradient : gradients)
      gradient.mul_(factor.to(gradient.device()));
  return total;
}

} // namespace troupe
