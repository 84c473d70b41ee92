// The umbrella comes first, as in a user's program: what is found in a
// forward's output does not depend on the headers before.
#include <troupe/torch.hpp>

#include <gtest/gtest.h>

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

namespace troupe::internal::test {

namespace {

template <class Output>
struct wrapping : torch::nn::Module {
  Output forward(const at::Tensor& x) { return Output{layer(x)}; }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(20, 5));
};

/// In a struct that names its tensors.
struct named {
  at::Tensor logits;
};

template <class F>
void for_each_tensor(named& x, F&& f) {
  f(x.logits);
}

/// In a struct that lists its fields.
struct listed {
  at::Tensor logits;
  auto members() { return std::tie(logits); }
};

/// In a struct that says nothing.
struct silent {
  at::Tensor logits;
};

struct mapping : torch::nn::Module {
  std::map<std::string, at::Tensor> forward(const at::Tensor& x) {
    return {{"logits", layer(x)}};
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(20, 5));
};

at::Tensor logits(const std::map<std::string, at::Tensor>& x) {
  return x.at("logits");
}
at::Tensor logits(const std::optional<at::Tensor>& x) {
  return *x;
}
at::Tensor logits(const std::vector<std::optional<at::Tensor>>& x) {
  return x.front().value();
}
template <class T>
at::Tensor logits(const T& x) {
  return x.logits;
}

data_parallel_options options(bool static_graph) {
  data_parallel_options result;
  result.static_graph = static_graph;
  result.find_unused_parameters = !static_graph;
  return result;
}

void on_two_ranks(const std::function<void(rank_of_test&)>& body) {
  for (auto& failure : run_ranks({true, false, 2}, body))
    EXPECT_EQ(failure, "");
}

template <class Model>
void expect_averages() {
  for (auto static_graph : {true, false})
    on_two_ranks([static_graph](rank_of_test& self) {
      auto model =
        make_ddp(seeded<Model>(self.rank), self.group(), options(static_graph));
      auto alone = seeded<Model>(0);
      for (int step = 0; step < 3; ++step) {
        auto [x, y] = samples(16, step);
        model.zero_grad();
        alone->zero_grad();
        torch::nn::functional::cross_entropy(
          logits(model.forward(self.share(x))), self.share(y))
          .backward();
        torch::nn::functional::cross_entropy(logits(alone->forward(x)), y)
          .backward();
        check_close(gradients(model.module()), gradients(*alone), 1e-6);
      }
    });
}

} // namespace

TEST(outputs_with_the_umbrella, may_be_a_map) {
  expect_averages<mapping>();
}

TEST(outputs_with_the_umbrella, may_be_optional_and_nested) {
  expect_averages<wrapping<std::optional<at::Tensor>>>();
  expect_averages<wrapping<std::vector<std::optional<at::Tensor>>>>();
}

TEST(outputs_with_the_umbrella, may_be_a_struct_that_lists_its_tensors) {
  expect_averages<wrapping<named>>();
  expect_averages<wrapping<listed>>();
}

TEST(outputs_with_the_umbrella, are_refused_if_nothing_lists_their_tensors) {
  for (auto static_graph : {true, false})
    on_two_ranks([static_graph](rank_of_test& self) {
      auto model = make_ddp(std::make_shared<wrapping<silent>>(), self.group(),
                            options(static_graph));
      auto message = refusal([&] { model.forward(torch::ones({1, 20})); });
      check(message.find("for_each_tensor") != std::string::npos, message);
    });
}

TEST(outputs_with_the_umbrella, of_what_cannot_be_replaced_are_not_known) {
  std::vector<at::Tensor*> found;
  const at::Tensor fixed = torch::ones(1);
  std::pair<const at::Tensor, int> in_pair{fixed, 1};
  EXPECT_FALSE(find_tensors(in_pair, found));
  std::map<int, std::string> texts{{1, "a"}};
  std::vector<bool> flags{true};
  EXPECT_TRUE(find_tensors(texts, found));
  EXPECT_TRUE(find_tensors(flags, found));
  torch::data::Example<> example{torch::ones(1), torch::ones(1)};
  EXPECT_TRUE(find_tensors(example, found));
  EXPECT_EQ(found.size(), 2u);
}

} // namespace troupe::internal::test
