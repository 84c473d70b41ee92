#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// Changes of the model before and within a join.

namespace troupe::internal::test {

namespace {

class changes_around_a_join : public test_on_ranks {};

TEST_P(changes_around_a_join, a_join_keeps_to_the_parameters_of_its_begin) {
  on_ranks([](rank_of_test& self) {
    auto inner = seeded<mlp>(self.rank);
    set_trainable(*inner->first, false);
    auto model = make_ddp(inner, self.group());
    auto message = refusal([&] {
      model.join([&] {
        set_trainable(*inner->first, true);
        model.forward(torch::ones({1, 20}));
      });
    });
    check(message.find("require a gradient than before join()")
            != std::string::npos,
          message);
  });
}

// All ranks are at its begin, those without a batch too.
TEST_P(changes_around_a_join, a_join_follows_the_changes_before_it) {
  for (auto type : {at::kFloat, at::kDouble})
    for (auto& options : ways_to_train())
      on_ranks([&options, type](rank_of_test& self) {
        context_of_test run{self};
        auto inner = seeded<mlp>(self.rank);
        set_trainable(*inner->first, false);
        auto model = prepare_model(*run.context, inner, options);
        torch::optim::SGD optimizer{inner->parameters(), sgd()};
        auto x = self.share(samples(self.size * batch, 0).first).to(type);
        set_trainable(*inner->first, true);
        inner->to(type);
        model.join([&] {
          for (int step = 0; step < 2 + self.rank; ++step) {
            model.zero_grad();
            model.forward(x).square().mean().backward();
            check(gradients(*inner).size() == 6, "a gradient is missing");
            optimizer.step();
            run.report();
          }
        });
        check_equal_on_ranks(self, inner->parameters());
      });
}

TEST_P(changes_around_a_join, a_join_for_evaluation_follows_no_changes) {
  on_ranks([](rank_of_test& self) {
    auto inner = seeded<mlp>(self.rank);
    auto model = make_ddp(inner, self.group());
    auto x = torch::ones({4, 20});
    model.forward(x).mean().backward();
    auto reducer = model.data_parallel().reducer();
    inner->to(at::kDouble);
    {
      at::NoGradGuard no_grad;
      model.join([&] { model.forward(x.to(at::kDouble)); });
    }
    inner->to(at::kFloat);
    model.zero_grad();
    model.forward(x).mean().backward();
    check(model.data_parallel().reducer() == reducer,
          "an evaluation counted the parameters again");
    check_equal_on_ranks(self, gradients(*inner));
  });
}

TEST_P(changes_around_a_join, a_join_keeps_to_the_types_of_its_begin) {
  on_ranks([](rank_of_test& self) {
    auto inner = seeded<mlp>(self.rank);
    auto model = make_ddp(inner, self.group());
    auto message = refusal([&] {
      model.join([&] {
        inner->to(at::kDouble);
        model.forward(torch::ones({1, 20}, at::kDouble));
      });
    });
    check(message.find("another type or device than before join()")
            != std::string::npos,
          message);
  });
}

// The number of ranks with data is not known where such gradients are divided.
TEST(a_world_of_one, refuses_a_join_that_more_ranks_would_refuse) {
  std::vector<data_parallel_options> ways(3);
  ways[0].compression = gradient_compression::fp16;
  ways[1].compression = gradient_compression::bf16;
  ways[2].comm_hook = [](const group_ptr& group) {
    return std::make_unique<summing_hook>(group);
  };
  for (auto& options : ways) {
    auto model = make_ddp(seeded<mlp>(0), nullptr, options);
    model.join([] {});
    auto message = refusal(
      [&] { model.join([] {}, {.divide_by_initial_world_size = false}); });
    EXPECT_NE(message.find("divide_by_initial_world_size"), std::string::npos)
      << message;
  }
}

INSTANTIATE_TEST_SUITE_P(over, changes_around_a_join, small_groups(), name_of);

} // namespace

} // namespace troupe::internal::test
