#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// Models, outputs and weights of all kinds.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class model_kinds : public test_on_ranks {};

TEST_P(model_kinds, frozen_and_shared_parameters_count_once) {
  on_ranks([](rank_of_test& self) {
    auto model = make_ddp(seeded<tied>(self.rank), self.group());
    check_equal_on_ranks(self, model.parameters());
    check(model.parameters().size() == 6, "a shared weight counts twice");
    auto [x, y] = samples(self.size * batch, 0);
    auto expected = mean_of_ranks<tied>(self, x, y);
    cross_entropy(model(self.share(x)), self.share(y)).backward();
    check_close(gradients(model.module()), expected, 1e-6);
    check(!model->frozen->weight.grad().defined(), "a frozen weight learns");
  });
}

TEST_P(model_kinds, the_loss_may_leave_an_output_out) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.find_unused_parameters = true;
    auto model = make_ddp(seeded<two_heads>(self.rank), self.group(), options);
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = samples(self.size * batch, step);
      model.zero_grad();
      auto output = model(self.share(x));
      cross_entropy(output.main, self.share(y)).backward();
      check(!model->extra->weight.grad().defined(), "an unused head learns");
      check_equal_on_ranks(self, gradients(model.module()));
    }
  });
}

TEST_P(model_kinds, an_output_of_unknown_type_is_reported) {
  struct opaque {
    at::Tensor value;
  };
  struct model_of_opaque : torch::nn::Module {
    model_of_opaque() { register_module("layer", layer); }
    opaque forward(const at::Tensor& x) { return {layer(x)}; }
    torch::nn::Linear layer{20, 5};
  };
  on_ranks([](rank_of_test& self) {
    if (self.size == 1)
      return;
    data_parallel_options options;
    options.find_unused_parameters = true;
    auto model =
      make_ddp(std::make_shared<model_of_opaque>(), self.group(), options);
    auto message = refusal([&] { model(torch::ones({1, 20})); });
    check(message.find("for_each_tensor") != std::string::npos, message);
  });
}

TEST_P(model_kinds, a_second_forward_may_come_before_the_first_backward) {
  on_ranks([](rank_of_test& self) {
    auto model = make_ddp(seeded<convnet>(self.rank), self.group());
    auto [x, y] = samples(self.size * batch, 0, 36);
    // In evaluation the norm saves its buffers for backward; the broadcast of
    // the second forward writes them.
    model.eval();
    auto first = cross_entropy(model(self.share(x)), self.share(y));
    auto guard = model.no_sync();
    auto second = cross_entropy(model(self.share(x)), self.share(y));
    (first + second).backward();
    check(gradients(model.module()).size() == 6, "a gradient is missing");
  });
}

TEST_P(model_kinds, channels_last_weights_keep_their_strides) {
  on_ranks([](rank_of_test& self) {
    auto inner = seeded<convnet>(self.rank);
    auto& weight = inner->convolution->weight;
    weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    auto strides = weight.strides().vec();
    auto model = make_ddp(inner, self.group());
    auto [x, y] = samples(self.size * batch, 0, 36);
    auto expected = mean_of_ranks<convnet>(self, x, y);
    cross_entropy(model(self.share(x)), self.share(y)).backward();
    check(weight.grad().strides().vec() == strides, "strides changed");
    check_close(gradients(model.module()), expected, 1e-6);
  });
}

TEST_P(model_kinds, a_scripted_module_trains_like_any_other) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.find_unused_parameters = true;
    auto model = make_ddp(scripted(self.rank), self.group(), options);
    auto alone = scripted(0);
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = samples(self.size * batch, step);
      auto loss_of = [](const c10::IValue& output, const at::Tensor& target) {
        return cross_entropy(output.toTupleRef().elements()[0].toTensor(),
                             target);
      };
      model.zero_grad();
      auto output = model.forward(self.share(x));
      loss_of(output, self.share(y)).backward();
      for (auto parameter : alone.parameters())
        parameter.mutable_grad().reset();
      loss_of(alone.forward({x}), y).backward();
      check_close(gradients(model.module()), gradients(alone), 1e-6);
    }
  });
}

TEST_P(model_kinds, an_ignored_parameter_stays_with_its_rank) {
  on_ranks([](rank_of_test& self) {
    if (self.size == 1)
      return;
    data_parallel_options options;
    options.ignored = {"third.bias"};
    auto model = make_ddp(seeded<mlp>(self.rank), self.group(), options);
    check(!equal_on_ranks(self, {model->third->bias}), "it was broadcast");
    check_equal_on_ranks(self, {model->third->weight});
    auto [x, y] = samples(self.size * batch, 0);
    cross_entropy(model(self.share(x)), self.share(y)).backward();
    check(!equal_on_ranks(self, {model->third->bias.grad()}),
          "its gradient was averaged");
    check_equal_on_ranks(self, {model->third->weight.grad()});
  });
}

TEST(the_tensors_of_an_output, are_found_in_any_nesting) {
  using nested =
    std::tuple<std::vector<std::pair<int, at::Tensor>>,
               std::optional<at::Tensor>, std::map<std::string, at::Tensor>,
               std::array<two_heads::outputs, 2>, bool>;
  nested x;
  std::get<0>(x) = {{1, torch::ones(1)}, {2, torch::ones(1)}};
  std::get<2>(x) = {{"a", torch::ones(1)}, {"b", at::Tensor{}}};
  std::get<3>(x)[1].extra = torch::ones(1);
  std::vector<at::Tensor*> found;
  EXPECT_TRUE(find_tensors(x, found));
  std::vector<at::Tensor*> wanted{
    &std::get<0>(x)[0].second, &std::get<0>(x)[1].second, &std::get<2>(x)["a"],
    &std::get<3>(x)[1].extra};
  EXPECT_EQ(found, wanted);
  struct unknown {
  } y;
  EXPECT_FALSE(find_tensors(y, found));
}

INSTANTIATE_TEST_SUITE_P(over, model_kinds, all_groups(), name_of);

} // namespace

} // namespace troupe::internal::test
