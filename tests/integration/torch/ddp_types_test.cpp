#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// Weights that become of another type between steps, for good or for a while.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class changing_types : public test_on_ranks {};

// Forth and back leaves the addresses, the types and the values as they were.
TEST_P(changing_types, weights_of_another_type_are_averaged_from_then_on) {
  for (auto& options : ways_to_train())
    for (auto back : {false, true})
      for (auto in_window : {false, true})
        on_ranks([=, &options](rank_of_test& self) {
          context_of_test run{self};
          auto inner = seeded<mlp>(self.rank);
          auto alone = seeded<mlp>(0);
          auto model = prepare_model(*run.context, inner, options);
          auto backward = [&](int number) {
            auto [x, y] = samples(self.size * batch, number);
            x = x.to(inner->first->weight.dtype());
            cross_entropy(model.forward(self.share(x)), self.share(y))
              .backward();
            cross_entropy(alone->forward(x), y).backward();
          };
          for (int step = 0; step < 5; ++step) {
            model.zero_grad();
            alone->zero_grad();
            if (step == 2)
              for (auto& x : {inner, alone}) {
                x->to(at::kDouble);
                if (back)
                  x->to(at::kFloat);
              }
            if (in_window) {
              auto guard = model.no_sync();
              backward(2 * step);
            }
            backward(2 * step + 1);
            check_close(gradients(*inner), gradients(*alone), 1e-6);
            check_equal_on_ranks(self, gradients(*inner));
            run.report();
          }
        });
}

// As to save the model from one rank: the others do not know of it.
TEST_P(changing_types, one_rank_may_change_a_type_forth_and_back) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      context_of_test run{self};
      auto inner = seeded<mlp>(self.rank);
      auto alone = seeded<mlp>(0);
      reducer_counts counts;
      auto model = prepare_model(*run.context, inner, counted(counts, options));
      for (int step = 0; step < 4; ++step) {
        if (self.rank == 0 && step > 0) {
          inner->to(at::kDouble);
          if (step == 2) {
            at::NoGradGuard evaluation;
            inner->forward(torch::ones({1, 20}, at::kDouble));
          }
          inner->to(at::kFloat);
        }
        run.report();
        auto [x, y] = samples(self.size * batch, step);
        model.zero_grad();
        alone->zero_grad();
        cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
        cross_entropy(alone->forward(x), y).backward();
        check_close(gradients(*inner), gradients(*alone), 1e-6);
        check_equal_on_ranks(self, gradients(*inner));
      }
      check(counts.made == 1, "the same parameters were counted again");
    });
}

TEST_P(changing_types, weights_of_another_type_need_the_models_forward) {
  for (auto& options : ways_to_train())
    for (auto back : {false, true})
      on_ranks([&options, back](rank_of_test& self) {
        context_of_test run{self};
        auto inner = seeded<mlp>(self.rank);
        auto model = prepare_model(*run.context, inner, options);
        auto x = self.share(samples(self.size * batch, 0).first);
        model.forward(x).mean().backward();
        model.zero_grad();
        inner->to(at::kDouble);
        x = x.to(at::kDouble);
        if (back) {
          inner->to(at::kFloat);
          x = x.to(at::kFloat);
        }
        if (!back) // which would put the Reducer's hooks back
          run.report();
        auto message = refusal([&] { inner->forward(x).mean().backward(); });
        check(message.find("whose type or device was changed")
                != std::string::npos,
              message);
        model.zero_grad();
        {
          auto guard = model.no_sync();
          inner->forward(x).mean().backward();
        }
        model.forward(x).mean().backward();
        run.report();
        check_equal_on_ranks(self, gradients(*inner));
      });
}

// As a program that saves rank 0's model in half precision.
TEST_P(changing_types, weights_that_one_rank_rounds_are_not_reported) {
  for (auto type : {at::kHalf, at::kBFloat16})
    for (auto trains : {false, true})
      for (auto to_forward : {false, true})
        on_ranks([=](rank_of_test& self) {
          context_of_test run{self};
          auto inner = seeded<mlp>(0);
          auto model = prepare_model(*run.context, inner);
          torch::optim::SGD optimizer{model.parameters(), {0.1}};
          auto train = [&](int number) {
            model.zero_grad();
            auto [x, y] = samples(self.size * batch, number);
            cross_entropy(model.forward(self.share(x)), self.share(y))
              .backward();
            optimizer.step();
          };
          auto round = [&](torch::nn::Module& x) {
            x.to(type);
            x.to(at::kFloat);
          };
          if (trains)
            train(0);
          if (self.rank == 0)
            round(*inner->second);
          if (to_forward)
            train(1);
          if (self.rank == 0) {
            auto message = refusal([&] { run.report(); });
            check(message.find("parameter second.weight was rounded")
                    != std::string::npos,
                  message);
          } else {
            run.report();
          }
          refusal([&] { model.check_replicas(); });
          prepare_again(self, run, model);
          train(2);
          run.report();
          round(*inner); // alike on all ranks
          refusal([&] { run.report(); });
          model.check_replicas();
          run.report();
          train(3);
          run.report();
          check_equal_on_ranks(self, model.parameters());
        });
}

TEST_P(changing_types, weights_that_no_narrower_type_changed_are_reported) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto inner = seeded<convnet>(0); // whose norm has constants
    inner->head->to(at::kHalf);
    inner->head->to(at::kFloat);
    {
      at::NoGradGuard no_grad;
      inner->norm->weight.fill_(1);
      inner->norm->bias.zero_();
    }
    auto model = prepare_model(*run.context, inner);
    auto x = self.share(samples(self.size * batch, 0, 36).first);
    auto visit = [&](torch::nn::Module& part, at::ScalarType type) {
      if (self.rank == 0) {
        part.to(type);
        part.to(at::kFloat);
      }
      run.report();
    };
    visit(*inner->head, at::kDouble); // has been rounded before
    model.forward(x).square().mean().backward();
    visit(*inner->norm, at::kHalf);
    visit(*inner, at::kDouble);
    model.check_replicas();
  });
}

INSTANTIATE_TEST_SUITE_P(over, changing_types, small_groups(), name_of);

} // namespace

} // namespace troupe::internal::test
