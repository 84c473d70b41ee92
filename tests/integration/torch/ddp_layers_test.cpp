#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// Which parameters are averaged when layers are frozen, unfrozen or replaced
// between steps.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class changing_layers : public test_on_ranks {};

TEST_P(changing_layers, a_layer_counts_from_the_step_that_unfreezes_it) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      auto inner = seeded<mlp>(self.rank);
      auto alone = seeded<mlp>(0);
      set_trainable(*inner->first, false);
      set_trainable(*alone->first, false);
      auto model = make_ddp(inner, self.group(), options);
      torch::optim::SGD ours{model.parameters(), sgd()};
      torch::optim::SGD theirs{alone->parameters(), sgd()};
      for (int step = 0; step < 6; ++step) {
        for (auto& x : {inner, alone}) {
          set_trainable(*x->first, step >= 2);
          set_trainable(*x->second, step < 4);
        }
        auto [x, y] = samples(self.size * batch, step);
        model.zero_grad();
        alone->zero_grad();
        cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
        cross_entropy(alone->forward(x), y).backward();
        auto of_rank = gradients(*inner);
        check(of_rank.size() == (step == 2 || step == 3 ? 6 : 4),
              "a frozen layer learns");
        check_close(of_rank, gradients(*alone), 1e-6);
        ours.step();
        theirs.step();
      }
      check_equal_on_ranks(self, model.parameters());
      check_close(model.parameters(), alone->parameters(), 1e-6);
    });
}

TEST_P(changing_layers, a_new_layer_begins_with_the_weights_of_rank_zero) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      auto inner = seeded<mlp>(self.rank);
      auto model = make_ddp(inner, self.group(), options);
      auto train = [&](int number) {
        auto [x, y] = samples(self.size * batch, number);
        model.zero_grad();
        cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
      };
      train(0);
      inner->third = seeded<mlp>(10 + self.rank)->third;
      inner->replace_module("third", inner->third);
      for (int step = 1; step < 4; ++step) {
        train(step);
        check(gradients(*inner).size() == 6, "a gradient is missing");
        check_equal_on_ranks(self, model.parameters());
        check_equal_on_ranks(self, gradients(*inner));
      }
    });
}

// The Reducer has no hook there yet.
TEST_P(changing_layers, an_unfrozen_layer_needs_the_forward_of_the_model) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto inner = seeded<mlp>(0);
    set_trainable(*inner->third, false);
    data_parallel_options options;
    options.ignored = {"third.weight"};
    auto model = prepare_model(*run.context, inner, options);
    auto x = self.share(samples(self.size * batch, 0).first);
    model.forward(x).sum().backward();
    set_trainable(*inner, false);
    set_trainable(*inner->third, true);
    run.report();
    inner->forward(x).sum().backward();
    auto message = refusal([&] { run.report(); });
    check(message.find("parameter third.bias has a gradient")
            != std::string::npos,
          message);
    for (auto& x : inner->third->parameters())
      x.mutable_grad().zero_();
    run.report();
    model.forward(x).sum().backward();
    run.report();
    check_equal_on_ranks(self, {inner->third->bias.grad()});
  });
}

// The gradients of the layers that wait were averaged before.
TEST_P(changing_layers, layers_may_be_trained_in_turn) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      context_of_test run{self};
      auto inner = seeded<mlp>(0);
      set_trainable(*inner->second, false);
      auto model = prepare_model(*run.context, inner, options);
      auto x = self.share(samples(self.size * batch, 0).first);
      auto train = [&](bool first, bool third) {
        set_trainable(*inner->first, first);
        set_trainable(*inner->third, third);
        run.report();
        model.forward(x).square().mean().backward();
        run.report();
      };
      train(true, false);
      train(false, true);
      train(true, false);
      set_trainable(*inner->third, true);
      run.report();
      // `first` is averaged and refuses that itself.
      set_trainable(*inner->first, false);
      inner->forward(x).sum().backward();
      auto message = refusal([&] { run.report(); });
      check(message.find("parameter third.weight has a gradient")
              != std::string::npos,
            message);
    });
}

// As the critic of a GAN during the steps of the generator.
TEST_P(changing_layers, a_model_frozen_as_a_whole_passes_gradients_on) {
  on_ranks([](rank_of_test& self) {
    auto generator = make_ddp(torch::nn::Linear{20, 20}, self.group());
    reducer_counts counts;
    auto critic =
      make_ddp(seeded<mlp>(self.rank), self.group(), counted(counts));
    for (int step = 0; step < 3; ++step) {
      auto x = self.share(samples(self.size * batch, step).first);
      set_trainable(critic.module(), false);
      generator.zero_grad();
      critic.zero_grad();
      critic.forward(generator.forward(x)).square().mean().backward();
      check(gradients(critic.module()).empty(), "a frozen model learns");
      check_equal_on_ranks(self, gradients(generator.module()));
      set_trainable(critic.module(), true);
      critic.forward(generator->forward(x).detach()).mean().backward();
      check_equal_on_ranks(self, gradients(critic.module()));
    }
    check(counts.made == 1, "the same parameters were counted again");
  });
}

// On one rank only, so that the others have to learn of it.
TEST_P(changing_layers, a_reducer_that_cannot_be_made_ends_the_group) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto last = self.rank + 1 == self.size;
    auto inner = seeded<mlp>(0);
    set_trainable(*inner->first, false);
    int made = 0;
    data_parallel_options options;
    options.comm_hook = [&](const group_ptr& group) {
      if (++made == 2 && last)
        throw std::runtime_error{"no memory"};
      return std::make_unique<summing_hook>(group);
    };
    auto model = prepare_model(*run.context, inner, options);
    auto backward = [&] {
      auto [x, y] = samples(self.size * batch, 0);
      cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
    };
    backward();
    set_trainable(*inner->first, true);
    if (last)
      EXPECT_THROW(backward(), std::runtime_error);
    else
      refusal(backward);
    for (auto& message : {refusal(backward), refusal([&] { run.report(); }),
                          refusal([&] { model.check_replicas(); })})
      check(message.find("was dropped") != std::string::npos, message);
    prepare_again(self, run, model, options);
    model.zero_grad();
    backward();
    run.report();
    check(gradients(*inner).size() == 6, "a gradient is missing");
    check_equal_on_ranks(self, gradients(*inner));
  });
}

TEST_P(changing_layers, a_change_that_was_refused_is_tried_again) {
  for (auto mended : {false, true})
    on_ranks([mended](rank_of_test& self) {
      auto inner = seeded<mlp>(0);
      set_trainable(*inner->second, false);
      set_trainable(*inner->third, false);
      auto model = make_ddp(inner, self.group());
      auto backward = [&] {
        auto [x, y] = samples(self.size * batch, 0);
        cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
      };
      backward();
      auto last = self.rank + 1 == self.size;
      set_trainable(last ? *inner->third : *inner->second, true);
      for (int step = 0; step < 2; ++step) {
        auto message = refusal(backward);
        check(message.find("rank " + std::to_string(self.size - 1))
                != std::string::npos,
              message);
      }
      if (mended) { // as the last rank has had it, or as all had it at first
        set_trainable(*inner->second, false);
        set_trainable(*inner->third, true);
      } else {
        set_trainable(*inner->second, false);
        set_trainable(*inner->third, false);
      }
      model.zero_grad();
      backward();
      check(gradients(*inner).size() == (mended ? 4 : 2),
            "the change is not followed");
      check_equal_on_ranks(self, gradients(*inner));
    });
}

TEST(a_world_of_one, forgets_the_gradients_of_an_unfrozen_layer) {
  auto inner = seeded<mlp>(0);
  set_trainable(*inner->first, false);
  auto model = make_ddp(inner, nullptr);
  set_trainable(*inner->first, true);
  auto x = samples(8, 0).first;
  for (int step = 0; step < 2; ++step) {
    model.zero_grad();
    model(x).square().mean().backward();
  }
  auto alone = seeded<mlp>(0);
  alone->forward(x).square().mean().backward();
  check_close(gradients(*inner), gradients(*alone), 0);
}

INSTANTIATE_TEST_SUITE_P(over, changing_layers, small_groups(), name_of);

} // namespace

} // namespace troupe::internal::test
