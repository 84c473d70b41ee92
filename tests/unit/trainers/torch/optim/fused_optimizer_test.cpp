#include "troupe/trainers/torch/optim/fused_optimizer.hpp"

#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/train_context.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

constexpr int steps = 20;

/// Parameters of several shapes, layouts and types.
std::vector<at::Tensor> make_parameters() {
  at::manual_seed(1);
  std::vector<at::Tensor> result{
    at::randn({7, 5}),
    at::randn({}),
    at::randn({33}),
    at::randn({4, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast),
    at::randn({6, 6}, at::kDouble).t(),
    at::randn({3})};
  for (auto& x : result)
    x.requires_grad_();
  result.back().requires_grad_(false);
  return result;
}

/// The gradients of step *step*; the second parameter has none in the first
/// three steps.
void set_gradients(const std::vector<at::Tensor>& parameters, int step,
                   double sign = 1) {
  at::manual_seed(static_cast<std::uint64_t>(100 + step));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    // Laid out plainly: not always as the parameter.
    auto gradient = at::randn(parameters[i].sizes(),
                              at::TensorOptions{parameters[i].scalar_type()});
    if (parameters[i].requires_grad() && (i != 1 || step >= 3))
      parameters[i].mutable_grad() = sign * gradient;
  }
}

double difference(const std::vector<at::Tensor>& a,
                  const std::vector<at::Tensor>& b) {
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    result = std::max(result, (a[i] - b[i]).abs().max().item<double>());
  return result;
}

/// Trains two copies of the parameters and compares them after every step.
/// *sign* turns the gradients of the reference around.
template <class Fused, class Reference, class Options, class ReferenceOptions>
void compare(const Options& options,
             const ReferenceOptions& reference_options) {
  auto mine = make_parameters();
  auto theirs = make_parameters();
  Fused fused{mine, options};
  std::vector<at::Tensor> trainable(theirs.begin(), theirs.end() - 1);
  Reference reference{trainable, reference_options};
  auto sign = options.maximize ? -1.0 : 1.0;
  for (int step = 0; step < steps; ++step) {
    set_gradients(mine, step);
    set_gradients(theirs, step, sign);
    fused.step();
    reference.step();
    ASSERT_LT(difference(mine, theirs), 1e-6) << "step " << step;
  }
  EXPECT_TRUE(mine.back().equal(make_parameters().back()));
}

template <class F>
void for_all_adam_options(F f) {
  for (double weight_decay : {0.0, 0.1})
    for (bool amsgrad : {false, true})
      for (bool maximize : {false, true})
        for (double beta : {0.9, 0.5}) {
          SCOPED_TRACE(testing::Message()
                       << "weight_decay " << weight_decay << " amsgrad "
                       << amsgrad << " maximize " << maximize << " beta "
                       << beta);
          f(weight_decay, amsgrad, maximize, std::pair{beta, 0.99});
        }
}

/// Takes *steps* steps in one go, and again with a save and load in between.
template <class Fused, class Options>
void check_resume(const Options& options) {
  auto whole = make_parameters();
  Fused first{whole, options};
  for (int step = 0; step < steps; ++step) {
    first.set_lr(0.01 / (step + 1));
    set_gradients(whole, step);
    first.step();
  }
  auto parts = make_parameters();
  tensor_map saved;
  {
    Fused x{parts, options};
    for (int step = 0; step < 5; ++step) {
      x.set_lr(0.01 / (step + 1));
      set_gradients(parts, step);
      x.step();
    }
    for (auto& [name, value] : x.state("opt."))
      saved["opt." + name.substr(4)] = value.clone();
    saved["model.weight"] = at::ones({1});
  }
  Fused x{parts, options};
  x.load_state(saved, "opt.");
  EXPECT_DOUBLE_EQ(x.lr(), 0.01 / 5);
  for (int step = 5; step < steps; ++step) {
    x.set_lr(0.01 / (step + 1));
    set_gradients(parts, step);
    x.step();
  }
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_TRUE(parts[i].equal(whole[i])) << i;
}

std::string load_failure(fused_adam& x, const tensor_map& saved) {
  try {
    x.load_state(saved);
    return "";
  } catch (const train_error& e) {
    return e.reason().message;
  }
}

} // namespace

TEST(fused_optimizer_test, adam_equals_that_of_libtorch) {
  for_all_adam_options(
    [](double decay, bool amsgrad, bool maximize, auto betas) {
      compare<fused_adam, torch::optim::Adam>(
        adam_options{.lr = 1e-2,
                     .betas = betas,
                     .weight_decay = decay,
                     .amsgrad = amsgrad,
                     .maximize = maximize},
        torch::optim::AdamOptions(1e-2)
          .betas({betas.first, betas.second})
          .weight_decay(decay)
          .amsgrad(amsgrad));
    });
}

TEST(fused_optimizer_test, adamw_equals_that_of_libtorch) {
  for_all_adam_options(
    [](double decay, bool amsgrad, bool maximize, auto betas) {
      compare<fused_adamw, torch::optim::AdamW>(
        adamw_options{.lr = 1e-2,
                      .betas = betas,
                      .weight_decay = decay,
                      .amsgrad = amsgrad,
                      .maximize = maximize},
        torch::optim::AdamWOptions(1e-2)
          .betas({betas.first, betas.second})
          .weight_decay(decay)
          .amsgrad(amsgrad));
    });
}

TEST(fused_optimizer_test, sgd_equals_that_of_libtorch) {
  for (double momentum : {0.0, 0.9})
    for (double dampening : {0.0, 0.3})
      for (double decay : {0.0, 0.1})
        for (bool nesterov : {false, true})
          for (bool maximize : {false, true}) {
            if (nesterov && (momentum == 0 || dampening != 0))
              continue;
            SCOPED_TRACE(testing::Message()
                         << "momentum " << momentum << " dampening "
                         << dampening << " decay " << decay << " nesterov "
                         << nesterov << " maximize " << maximize);
            compare<fused_sgd, torch::optim::SGD>(
              sgd_options{.lr = 1e-2,
                          .momentum = momentum,
                          .dampening = dampening,
                          .weight_decay = decay,
                          .nesterov = nesterov,
                          .maximize = maximize},
              torch::optim::SGDOptions(1e-2)
                .momentum(momentum)
                .dampening(dampening)
                .weight_decay(decay)
                .nesterov(nesterov));
          }
}

TEST(fused_optimizer_test, has_the_defaults_of_libtorch) {
  compare<fused_adam, torch::optim::Adam>(adam_options{},
                                          torch::optim::AdamOptions());
  compare<fused_adamw, torch::optim::AdamW>(adamw_options{},
                                            torch::optim::AdamWOptions());
  compare<fused_sgd, torch::optim::SGD>(sgd_options{},
                                        torch::optim::SGDOptions(1e-3));
}

TEST(fused_optimizer_test, gives_each_group_its_own_options) {
  auto x = at::ones({2}).requires_grad_();
  auto y = at::ones({2}).requires_grad_();
  fused_sgd optimizer{
    {{{x}, sgd_options{.lr = 0.5}}, {{y}, sgd_options{.lr = 0.25}}}};
  x.mutable_grad() = at::ones({2});
  y.mutable_grad() = at::ones({2});
  optimizer.step();
  EXPECT_TRUE(x.equal(at::full({2}, 0.5)));
  EXPECT_TRUE(y.equal(at::full({2}, 0.75)));
  optimizer.set_lr(1, 0.75);
  EXPECT_EQ(optimizer.lr(0), 0.5);
  EXPECT_EQ(optimizer.lr(1), 0.75);
  optimizer.step();
  EXPECT_TRUE(y.equal(at::zeros({2})));
}

TEST(fused_optimizer_test, forgets_gradients_unless_asked_to_zero_them) {
  auto x = at::ones({3}).requires_grad_();
  auto unused = at::ones({3}).requires_grad_();
  fused_adamw optimizer{{x, unused}};
  x.mutable_grad() = at::ones({3});
  unused.mutable_grad() = at::ones({3});
  optimizer.step();
  optimizer.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
  // Neither weight decay nor old momentum moves what got no gradient.
  auto before = unused.detach().clone();
  x.mutable_grad() = at::ones({3});
  optimizer.step();
  EXPECT_TRUE(unused.equal(before));
  optimizer.zero_grad(/*set_to_none=*/false);
  EXPECT_TRUE(x.grad().equal(at::zeros({3})));
}

TEST(fused_optimizer_test, zeroes_gradients_where_they_lie) {
  auto bucket = at::ones({5});
  auto x = at::ones({3}).requires_grad_();
  auto frozen = at::ones({3});
  x.mutable_grad() = bucket.narrow(0, 1, 3);
  fused_adam optimizer{{x, frozen}};
  optimizer.zero_grad(false);
  EXPECT_TRUE(bucket.equal(at::tensor({1.f, 0.f, 0.f, 0.f, 1.f})));
  EXPECT_EQ(x.grad().data_ptr(), bucket.narrow(0, 1, 3).data_ptr());
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(fused_optimizer_test, zeroes_gradients_that_have_a_history) {
  auto x = at::full({2}, 3.0).requires_grad_();
  auto gradient = torch::autograd::grad({(x * x * x).sum()}, {x}, {},
                                        /*retain_graph=*/true,
                                        /*create_graph=*/true);
  x.mutable_grad() = gradient.front();
  fused_adam optimizer{{x}};
  optimizer.zero_grad(false);
  EXPECT_TRUE(x.grad().equal(at::zeros({2})));
  EXPECT_FALSE(x.grad().grad_fn());
}

TEST(fused_optimizer_test, continues_exactly_from_a_saved_state) {
  check_resume<fused_adam>(adam_options{.amsgrad = true});
  check_resume<fused_adamw>(adamw_options{});
  check_resume<fused_sgd>(sgd_options{.momentum = 0.9, .dampening = 0.1});
  check_resume<fused_sgd>(sgd_options{});
}

TEST(fused_optimizer_test, restores_all_options_of_a_group) {
  auto x = at::ones({2}).requires_grad_();
  x.mutable_grad() = at::ones({2});
  fused_adamw saved{{x}, {.amsgrad = true, .maximize = true}};
  auto& changed = saved.groups()[0].options;
  changed.betas = {0.8, 0.95};
  changed.eps = 1e-6;
  changed.weight_decay = 0.2;
  saved.step();
  fused_adamw resumed{{x}};
  resumed.load_state(saved.state());
  auto& options = resumed.groups()[0].options;
  EXPECT_EQ(options.betas, changed.betas);
  EXPECT_EQ(options.eps, 1e-6);
  EXPECT_EQ(options.weight_decay, 0.2);
  EXPECT_TRUE(options.amsgrad);
  EXPECT_TRUE(options.maximize);
  fused_sgd sgd{{x}, {.momentum = 0.9, .dampening = 0.5}};
  sgd.groups()[0].options.momentum = 0.7;
  sgd.step();
  fused_sgd other{{x}};
  other.load_state(sgd.state());
  EXPECT_EQ(other.groups()[0].options.momentum, 0.7);
  EXPECT_EQ(other.groups()[0].options.dampening, 0.5);
}

TEST(fused_optimizer_test, takes_a_state_that_has_the_learning_rate_alone) {
  auto x = at::ones({2}).requires_grad_();
  fused_adam optimizer{{x}, {.weight_decay = 0.3}};
  optimizer.load_state({{"optimizer.group.0.lr", at::scalar_tensor(0.5)}});
  EXPECT_EQ(optimizer.lr(), 0.5);
  EXPECT_EQ(optimizer.groups()[0].options.weight_decay, 0.3);
}

TEST(fused_optimizer_test, refuses_a_state_that_does_not_fit) {
  auto x = at::ones({2}).requires_grad_();
  x.mutable_grad() = at::ones({2});
  fused_adam optimizer{{x}};
  optimizer.step();
  auto good = optimizer.state();
  EXPECT_EQ(good.size(), 3u + 7u); // tensors and options
  auto bad = good;
  bad.erase("optimizer.group.0.lr");
  EXPECT_NE(load_failure(optimizer, bad).find("group.0.lr is missing"),
            std::string::npos);
  bad = good;
  bad.erase("optimizer.state.0.exp_avg");
  EXPECT_NE(load_failure(optimizer, bad).find("state.0.* is incomplete"),
            std::string::npos);
  bad = good;
  bad["optimizer.state.0.exp_avg"] = at::ones({3});
  EXPECT_NE(load_failure(optimizer, bad).find("exp_avg has another shape"),
            std::string::npos);
  bad = good;
  bad["optimizer.state.1.exp_avg"] = at::ones({3});
  EXPECT_NE(load_failure(optimizer, bad).find("1 tensor that"),
            std::string::npos);
  EXPECT_EQ(load_failure(optimizer, good), "");
}

TEST(fused_optimizer_test, refuses_sparse_gradients) {
  torch::nn::Embedding embedding{
    torch::nn::EmbeddingOptions(4, 2).sparse(true)};
  embedding->forward(at::tensor(std::vector<std::int64_t>{1})).sum().backward();
  fused_adam adam{embedding->parameters()};
  fused_sgd sgd{embedding->parameters()};
  EXPECT_THROW(adam.step(), train_error);
  EXPECT_THROW(sgd.step(), train_error);
  adam.zero_grad(false);
  EXPECT_EQ(embedding->weight.grad().to_dense().abs().sum().item<float>(), 0);
}

TEST(fused_optimizer_test, keeps_no_momentum_of_a_first_step_that_failed) {
  auto x =
    torch::zeros({2}, at::ScalarType::Float8_e4m3fn); // no kernel takes these
  x.set_requires_grad(true);
  x.mutable_grad() = torch::zeros({2}, at::ScalarType::Float8_e4m3fn);
  fused_sgd optimizer{std::vector<at::Tensor>{x}, {.lr = 0.1, .momentum = 0.9}};
  EXPECT_THROW(optimizer.step(), c10::Error);
  EXPECT_FALSE(optimizer.state().contains("optimizer.state.0.momentum_buffer"));
}

TEST(fused_optimizer_test, refuses_parameters_that_it_cannot_update) {
  auto x = at::ones({2}).requires_grad_();
  auto with = [](std::vector<at::Tensor> parameters) {
    fused_adam optimizer{std::move(parameters)};
  };
  EXPECT_THROW(with({}), train_error);
  EXPECT_THROW(with({at::Tensor{}}), train_error);
  EXPECT_THROW(with({x * 2}), train_error);
  EXPECT_THROW(with({x, x}), train_error);
  EXPECT_THROW(with({at::ones({2}, at::kLong)}), train_error);
  EXPECT_THROW(with({at::ones({1}).expand({4})}), train_error);
  EXPECT_THROW((fused_sgd{{x}, {.nesterov = true}}), train_error);
}

TEST(fused_optimizer_test, refuses_options_that_libtorch_refuses) {
  auto parameters = std::vector{torch::ones({2}).requires_grad_()};
  auto nan = std::numeric_limits<double>::quiet_NaN();
  for (auto& options :
       {adam_options{.lr = -0.1}, adam_options{.lr = nan},
        adam_options{.betas = {1, 0.9}}, adam_options{.betas = {0.9, -1}},
        adam_options{.eps = -1}, adam_options{.weight_decay = nan}})
    EXPECT_THROW((fused_adam{parameters, options}), train_error);
  for (auto& options : {sgd_options{.lr = -1}, sgd_options{.momentum = -1},
                        sgd_options{.dampening = nan}})
    EXPECT_THROW((fused_sgd{parameters, options}), train_error);
  fused_sgd right{parameters, {.lr = 0, .dampening = -1}};
  EXPECT_THROW(right.set_lr(-1), train_error);
  EXPECT_THROW(right.set_lr(0, nan), train_error);
  EXPECT_EQ(right.lr(), 0);
}

TEST(fused_optimizer_test, trains_in_half_precision) {
  auto x = at::ones({8}, at::kBFloat16).requires_grad_();
  fused_adamw optimizer{{x}, {.lr = 0.5, .weight_decay = 0}};
  x.mutable_grad() = at::ones({8}, at::kBFloat16);
  optimizer.step();
  EXPECT_TRUE(x.equal(at::full({8}, 0.5, at::kBFloat16)));
}
