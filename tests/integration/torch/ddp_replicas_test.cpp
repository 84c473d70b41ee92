#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/data_parallel/replica_comparison.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// Which models and options are refused, and weights that differ between ranks.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class replicas : public test_on_ranks {};

TEST_P(replicas, options_that_contradict_or_miss_are_refused) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options both;
    both.compression = gradient_compression::bf16;
    both.comm_hook = [](const group_ptr&) { return nullptr; };
    auto message =
      refusal([&] { make_ddp(seeded<mlp>(0), self.group(), both); });
    check(message.find("comm_hook and a compression") != std::string::npos,
          message);
    data_parallel_options misspelt;
    misspelt.ignored = {"third.weight", "third.bais"};
    message =
      refusal([&] { make_ddp(seeded<mlp>(0), self.group(), misspelt); });
    check(message.find("ignored has third.bais") != std::string::npos, message);
  });
}

// Of equal shapes, so that nothing else distinguishes them.
TEST_P(replicas, ranks_that_would_mix_parameters_are_refused) {
  struct two_layers : torch::nn::Module {
    explicit two_layers(bool other_order) {
      for (auto name :
           {other_order ? "right" : "left", other_order ? "left" : "right"})
        layers.push_back(register_module(name, torch::nn::Linear(4, 4)));
    }
    at::Tensor forward(at::Tensor x) {
      for (auto& layer : layers)
        x = layer(x);
      return x;
    }
    std::vector<torch::nn::Linear> layers;
  };
  on_ranks([](rank_of_test& self) {
    auto last = self.rank + 1 == self.size;
    auto expect_refusal = [&](std::shared_ptr<two_layers> model) {
      auto message = refusal([&] { make_ddp(model, self.group()); });
      check(message.find("rank " + std::to_string(self.size - 1))
              != std::string::npos,
            message);
      check(!last
              || message.find("with other names or in another order")
                   != std::string::npos,
            message);
    };
    expect_refusal(std::make_shared<two_layers>(last));
    auto frozen = std::make_shared<two_layers>(false);
    for (auto& x : frozen->layers[last ? 1 : 0]->parameters())
      x.requires_grad_(false);
    expect_refusal(frozen);
    // What is ignored is each rank's own business.
    auto own = std::make_shared<two_layers>(false);
    auto name = "of_rank_" + std::to_string(self.rank);
    own->register_module(name, torch::nn::Linear(2, 2));
    make_ddp(own, self.group(),
             {.ignored = {name + ".weight", name + ".bias"}});
  });
}

TEST_P(replicas, replicas_that_differ_are_reported_on_every_rank) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.ignored = {"first.bias"};
    auto model = make_ddp(seeded<mlp>(0), self.group(), options);
    auto last = self.rank + 1 == self.size;
    auto add = [&](at::Tensor x) {
      at::NoGradGuard no_grad;
      x.view({-1})[3].add_(last ? 1e-6 : 0.0);
    };
    add(model->first->bias);
    model.check_replicas();
    add(model->second->weight);
    auto message = refusal([&] { model.check_replicas(); });
    check(message.find("parameter second.weight of rank "
                       + std::to_string(self.size - 1) + " differs")
            != std::string::npos,
          message);
  });
}

// As on a GPU.
TEST(replicas_test, two_elements_in_each_others_place_are_a_difference) {
  auto print = [](const at::Tensor& x) {
    return sum_by_place(x).item<std::int64_t>();
  };
  for (auto type : {at::kHalf, at::kFloat, at::kDouble}) {
    // Two rows and a part, all different.
    auto x = torch::arange(-1025, 1025, torch::kFloat).to(type);
    EXPECT_EQ(print(x), print(x.clone()));
    for (auto [i, j] :
         std::vector<std::pair<int, int>>{{0, 2},
                                          {0, 1024},
                                          {1, 1024},
                                          {1024, 1026}, // -1 and 1
                                          {1030, 2049},
                                          {2048, 2049}}) {
      auto y = x.clone();
      y[i] = x[j];
      y[j] = x[i];
      EXPECT_NE(print(x), print(y)) << i << ' ' << j;
    }
  }
}

TEST_P(replicas, a_parameter_of_two_prepared_models_is_refused) {
  on_ranks([](rank_of_test& self) {
    auto inner = seeded<mlp>(0);
    auto x = torch::ones({4, 20});
    auto model =
      std::make_unique<data_parallel_model<mlp>>(make_ddp(inner, self.group()));
    model->forward(x).mean().backward();
    auto part = make_ddp(inner->first, self.group());
    auto refused = [](auto&& f) {
      auto message = refusal(f);
      check(message.find("prepare one module that holds both")
              != std::string::npos,
            message);
    };
    refused([&] { part.forward(x); });
    refused([&] { part.forward(x); });
    refused([&] { part.join([] {}); });
    model.reset();
    part.zero_grad();
    part.forward(x).mean().backward();
    check_equal_on_ranks(self, gradients(*inner->first));
  });
}

TEST_P(replicas, a_model_may_be_prepared_again_in_its_place) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      context_of_test run{self};
      auto inner = seeded<mlp>(0);
      auto model = prepare_model(*run.context, inner, options);
      torch::optim::SGD optimizer{inner->parameters(), sgd()};
      for (int phase = 0; phase < 3; ++phase) {
        for (int step = 0; step < 2; ++step) {
          model.zero_grad();
          auto x = samples(self.size * batch, 2 * phase + step).first;
          model.forward(self.share(x)).square().mean().backward();
          optimizer.step();
        }
        check_equal_on_ranks(self, inner->parameters());
        run.report();
        model = prepare_model(*run.context, inner, options);
      }
    });
}

// As docs/collectives.md has it.
TEST_P(replicas, lbfgs_takes_equal_steps_with_the_mean_of_losses) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto& context = *run.context;
    auto model = prepare_model(context, seeded<mlp>(self.rank));
    auto [all_x, all_y] = samples(self.size * batch, 0);
    auto x = self.share(all_x);
    auto y = self.share(all_y);
    torch::optim::LBFGS optimizer{
      model.parameters(),
      torch::optim::LBFGSOptions{0.5}.max_iter(4).line_search_fn(
        "strong_wolfe")};
    auto mean_loss = [&] {
      model.zero_grad();
      auto loss = cross_entropy(model.forward(x), y);
      loss.backward();
      return all_reduce(context, loss.detach().clone(), reduce_op::mean);
    };
    auto first = mean_loss().item<double>();
    for (int step = 0; step < 3; ++step)
      optimizer.step(mean_loss);
    model.check_replicas();
    auto last = mean_loss().item<double>();
    check(last < first,
          "loss " + std::to_string(first) + " to " + std::to_string(last));
  });
}

TEST(a_world_of_one, refuses_options_that_more_ranks_would_refuse) {
  data_parallel_options both;
  both.compression = gradient_compression::bf16;
  both.comm_hook = [](const group_ptr&) { return nullptr; };
  EXPECT_THROW(make_ddp(seeded<mlp>(0), nullptr, both), train_error);
  data_parallel_options misspelt;
  misspelt.ignored = {"third.bais"};
  EXPECT_THROW(make_ddp(seeded<mlp>(0), nullptr, misspelt), train_error);
  data_parallel_options empty_buckets;
  empty_buckets.bucket_bytes = 0;
  EXPECT_THROW(make_ddp(seeded<mlp>(0), nullptr, empty_buckets), train_error);
}

// Forward would change the rows of each rank's own batch.
TEST(a_world_of_one, refuses_weights_that_change_in_forward) {
  struct net : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  auto make = [](const std::shared_ptr<net>& model,
                 const std::vector<std::string>& ignored) {
    data_parallel_options options;
    options.ignored = ignored;
    make_ddp(model, nullptr, options);
  };
  auto of_norm = [](const auto& table) {
    auto result = std::make_shared<net>();
    result->register_module("table", table);
    return result;
  };
  using torch::nn::Embedding;
  using torch::nn::EmbeddingBag;
  torch::nn::EmbeddingOptions embedding{4, 2};
  torch::nn::EmbeddingBagOptions bag{4, 2};
  make(of_norm(Embedding{embedding}), {});
  make(of_norm(EmbeddingBag{bag}), {});
  embedding.max_norm(1);
  bag.max_norm(1);
  for (auto& model :
       {of_norm(Embedding{embedding}), of_norm(EmbeddingBag{bag})}) {
    auto message = refusal([&] { make(model, {}); });
    EXPECT_NE(message.find("table.weight belongs to an embedding with a max_"),
              std::string::npos)
      << message;
    make(model, {"table.weight"});
  }
  for (auto is_set : {false, true}) {
    torch::jit::Module scripted{"Embedding"};
    scripted.register_parameter("weight", torch::ones({4, 2}), false);
    scripted.register_attribute(
      "max_norm", c10::OptionalType::create(c10::FloatType::get()),
      is_set ? c10::IValue{1.0} : c10::IValue{});
    if (is_set)
      refusal([&] { make_ddp(scripted, nullptr); });
    else
      make_ddp(scripted, nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(over, replicas, small_groups(), name_of);

} // namespace

} // namespace troupe::internal::test
