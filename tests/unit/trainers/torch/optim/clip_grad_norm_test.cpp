#include "troupe/trainers/torch/optim/clip_grad_norm.hpp"

#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/train_context.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

std::vector<at::Tensor> parameters_with_gradients() {
  at::manual_seed(1);
  std::vector<at::Tensor> result;
  for (auto n : {3, 7, 20}) {
    auto x = at::zeros({n}).requires_grad_();
    x.mutable_grad() = at::randn({n});
    result.push_back(x);
  }
  result.push_back(at::zeros({2}).requires_grad_()); // no gradient
  return result;
}

} // namespace

TEST(clip_grad_norm_test, equals_that_of_libtorch) {
  for (double norm_type :
       {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()})
    for (double max_norm : {0.1, 1.0, 1000.0}) {
      auto mine = parameters_with_gradients();
      auto theirs = parameters_with_gradients();
      auto norm = clip_grad_norm(mine, max_norm, norm_type);
      auto expected =
        torch::nn::utils::clip_grad_norm_(theirs, max_norm, norm_type);
      EXPECT_NEAR(norm.item<double>(), expected, 1e-5);
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(mine[i].grad().allclose(theirs[i].grad(), 1e-5, 1e-6));
    }
}

TEST(clip_grad_norm_test, scales_gradients_where_they_lie) {
  auto bucket = at::full({4}, 2.0);
  auto x = at::zeros({4}).requires_grad_();
  x.mutable_grad() = bucket.view({4});
  clip_grad_norm({x}, 1.0);
  EXPECT_NEAR(bucket.norm().item<double>(), 1.0, 1e-5);
}

TEST(clip_grad_norm_test, rounds_no_norm_to_a_narrower_type) {
  auto narrow = at::zeros({2}, at::kBFloat16).requires_grad_();
  narrow.mutable_grad() = at::zeros({2}, at::kBFloat16);
  auto wide = at::zeros({1}).requires_grad_();
  wide.mutable_grad() = at::full({1}, 1001.0);
  auto norm = clip_grad_norm({narrow, wide}, 1.0);
  EXPECT_NEAR(norm.item<double>(), 1001, 1e-3);
  EXPECT_NEAR(wide.grad().item<double>(), 1, 1e-5);
  EXPECT_EQ(narrow.grad().scalar_type(), at::kBFloat16);
}

TEST(clip_grad_norm_test, is_zero_without_gradients) {
  EXPECT_EQ(clip_grad_norm({at::zeros({1})}, 1.0).item<double>(), 0);
}

TEST(clip_grad_norm_test, refuses_sparse_gradients) {
  auto x = at::zeros({2, 2}).requires_grad_();
  x.mutable_grad() = at::ones({2, 2}).to_sparse();
  EXPECT_THROW(clip_grad_norm({x}, 1.0), train_error);
}
