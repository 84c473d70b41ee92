#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// What becomes of a step whose gradients were not all averaged: the backward
// left parameters out, failed or was refused.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class broken_backwards : public test_on_ranks {};

TEST_P(broken_backwards, a_step_that_left_parameters_out_is_not_reported) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto model = prepare_model(*run.context, seeded<two_heads>(0));
    torch::optim::SGD optimizer{model.parameters(), sgd()};
    auto [x, y] = samples(self.size * batch, 0);
    cross_entropy(model.forward(self.share(x)).main, self.share(y)).backward();
    optimizer.step();
    model.zero_grad(); // does not undo the step
    for (auto& message : {refusal([&] { run.report(); }),
                          refusal([&] { run.context->new_checkpoint(); }),
                          refusal([&] { model.forward(self.share(x)); })}) {
      check(message.find("no gradient to parameters extra.weight, extra.bias,")
              != std::string::npos,
            message);
      check(message.find("find_unused_parameters") != std::string::npos,
            message);
    }
  });
}

TEST_P(broken_backwards, what_a_failed_backward_left_is_not_reported) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto model = prepare_model(*run.context, seeded<mlp>(0));
    failing first{model->first->weight};
    auto [x, y] = samples(self.size * batch, 0);
    auto loss = cross_entropy(model.forward(self.share(x)), self.share(y));
    EXPECT_THROW(loss.backward(), std::runtime_error);
    for (auto& message : {refusal([&] { run.report(); }),
                          refusal([&] { model.forward(self.share(x)); })})
      check(message.find("backward failed") != std::string::npos, message);
    model.zero_grad();
    run.report();
  });
}

// In a callback of c10d, when all gradients of the backward have come.
TEST_P(broken_backwards, what_a_failed_reduction_left_is_not_reported) {
  for (auto options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      context_of_test run{self};
      bool fails = false;
      auto with_hook = options;
      with_hook.comm_hook = [&](const group_ptr& group) {
        return std::make_unique<failing_hook>(group, fails);
      };
      auto inner = seeded<mlp>(0);
      auto model = prepare_model(*run.context, inner, with_hook);
      auto x = self.share(samples(self.size * batch, 0).first);
      auto backward = [&] { model.forward(x).sum().backward(); };
      backward();
      run.report();
      model.zero_grad();
      fails = self.rank + 1 == self.size;
      if (fails)
        EXPECT_THROW(backward(), std::runtime_error);
      else
        backward();
      if (fails)
        for (auto& message :
             {refusal([&] { run.report(); }), refusal(backward)})
          check(message.find("backward failed") != std::string::npos, message);
      else
        run.report();
      fails = false;
      model.zero_grad();
      run.report();
      backward();
      run.report();
      check_equal_on_ranks(self, gradients(*inner));
    });
}

TEST_P(broken_backwards, a_failed_backward_is_over_with_its_gradients) {
  for (auto of_model : {false, true})
    on_ranks([of_model](rank_of_test& self) {
      context_of_test run{self};
      auto inner = seeded<mlp>(0);
      data_parallel_options options;
      options.gradient_as_bucket_view = of_model; // the optimizer refuses them
      auto model = prepare_model(*run.context, inner, options);
      torch::optim::SGD optimizer{model.parameters(), sgd()};
      auto x = self.share(samples(self.size * batch, 0).first);
      auto backward = [&] { model.forward(x).sum().backward(); };
      {
        failing first{inner->first->weight};
        EXPECT_THROW(backward(), std::runtime_error);
      }
      if (of_model) {
        model.zero_grad();
        run.report();
        auto message = refusal(backward);
        check(message.find("leave the train loop") != std::string::npos,
              message);
      }
      prepare_again(self, run, model, options);
      if (!of_model)
        optimizer.zero_grad();
      {
        auto guard = model.no_sync();
        backward();
        backward();
      }
      run.report();
      backward();
      run.report();
      check_equal_on_ranks(self, gradients(*inner));
      optimizer.step();
    });
}

/// Ways in which a backward leaves gradients that were not averaged.
enum class broken {
  second_backward, ///< Of one forward.
  own_forward,     ///< Of the module.
  another_type,    ///< Likewise, with weights that had another one meanwhile.
  static_graph,    ///< Within `no_sync`, of a layer that the graph lacks.
  failed,          ///< On its way to the first layer.
  failed_alone,    ///< Likewise, within `no_sync`.
  reduction,       ///< All gradients came, and their sum failed.
};

/// A model on one rank and a backward that breaks in one of these ways.
struct broken_backward {
  broken_backward(rank_of_test& self, broken how)
    : run(self), inner(seeded<two_heads>(0)), how(how),
      model(prepare_model(*run.context, inner, options_for(how, fails))),
      optimizer(model.parameters(), {0.1}), // has no state
      x(self.share(samples(self.size * batch, 0).first)) {}

  static data_parallel_options options_for(broken how, const bool& fails) {
    data_parallel_options result;
    if (how == broken::reduction)
      result.comm_hook = [&fails](const group_ptr& group) {
        return std::make_unique<failing_hook>(group, fails);
      };
    result.find_unused_parameters = true;
    result.static_graph = how == broken::static_graph;
    // The optimizer's `zero_grad` refuses views.
    result.gradient_as_bucket_view = false;
    return result;
  }

  static at::Tensor loss(const at::Tensor& output) {
    return output.square().mean();
  }

  void train() {
    optimizer.zero_grad();
    loss(model.forward(x).main).backward();
    optimizer.step();
    run.report();
  }

  void break_backward() {
    switch (how) {
      case broken::second_backward: {
        auto once = loss(model.forward(x).main);
        once.backward({}, /*retain_graph=*/true);
        refusal([&] { once.backward(); });
        break;
      }
      case broken::another_type:
        inner->to(at::kDouble);
        inner->to(at::kFloat);
        [[fallthrough]];
      case broken::own_forward:
        refusal([&] { loss(inner->forward(x).main).backward(); });
        break;
      case broken::static_graph: {
        auto guard = model.no_sync();
        refusal([&] { loss(model.forward(x).extra).backward(); });
        break;
      }
      case broken::failed: {
        failing trunk{inner->trunk->weight};
        EXPECT_THROW(loss(model.forward(x).main).backward(),
                     std::runtime_error);
        break;
      }
      case broken::failed_alone: {
        failing trunk{inner->trunk->weight};
        auto guard = model.no_sync();
        EXPECT_THROW(loss(model.forward(x).main).backward(),
                     std::runtime_error);
        break;
      }
      case broken::reduction:
        fails = true;
        EXPECT_ANY_THROW(loss(model.forward(x).main).backward());
        fails = false;
        break;
    }
  }

  context_of_test run;
  std::shared_ptr<two_heads> inner;
  broken how;
  bool fails = false; // the next reduction
  data_parallel_model<two_heads> model;
  torch::optim::SGD optimizer;
  at::Tensor x;
};

constexpr broken all_broken[]{broken::second_backward, broken::own_forward,
                              broken::another_type,    broken::static_graph,
                              broken::failed,          broken::failed_alone,
                              broken::reduction};

TEST_P(broken_backwards, what_a_refused_backward_left_is_not_reported) {
  for (auto how : all_broken)
    for (auto of_model : {false, true})
      if (how != broken::failed && how != broken::reduction)
        on_ranks([=](rank_of_test& self) {
          broken_backward it{self, how};
          it.train();
          it.optimizer.zero_grad();
          it.break_backward();
          for (auto& message : {refusal([&] { it.run.report(); }),
                                refusal([&] { it.model.forward(it.x); })})
            check(message.find("was refused and left") != std::string::npos,
                  message);
          if (of_model)
            it.model.zero_grad();
          else
            it.optimizer.zero_grad();
          it.run.report();
          it.train();
          check_equal_on_ranks(self, it.model.parameters());
        });
}

TEST_P(broken_backwards, a_step_with_what_a_backward_left_is_not_reported) {
  for (auto how : all_broken)
    for (auto of_model : {false, true})
      on_ranks([=](rank_of_test& self) {
        broken_backward it{self, how};
        it.train();
        it.optimizer.zero_grad();
        it.break_backward();
        it.optimizer.step();
        if (of_model)
          it.model.zero_grad();
        else
          it.optimizer.zero_grad();
        auto message = refusal([&] { it.run.report(); });
        // The gradients of `no_sync` come first.
        check(message.find(how == broken::failed_alone
                             ? "after a backward whose gradients no_sync()"
                             : "after a backward that failed or was refused")
                != std::string::npos,
              message);
        prepare_again(self, it.run, it.model, it.options_for(how, it.fails));
        it.train();
        check_equal_on_ranks(self, it.model.parameters());
      });
}

// A loop that catches the error and clears gradients at its top.
TEST_P(broken_backwards, weights_loaded_before_gradients_are_cleared) {
  on_ranks([](rank_of_test& self) {
    broken_backward it{self, broken::own_forward};
    it.train();
    it.optimizer.zero_grad();
    it.break_backward();
    auto load = [&](double value) {
      at::NoGradGuard no_grad;
      for (auto& x : it.inner->parameters())
        x.fill_(value);
    };
    load(0.1);
    it.optimizer.zero_grad();
    auto message = refusal([&] { it.run.report(); });
    check(message.find("before weights are loaded") != std::string::npos
            && message.find("check_replicas()") != std::string::npos,
          message);
    it.model.check_replicas();
    it.run.report();
    it.break_backward();
    load(0.2);
    it.model.check_replicas();
    it.optimizer.zero_grad();
    it.run.report();
    it.train();
  });
}

TEST_P(broken_backwards, gradients_that_wait_for_nothing_are_reported) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    data_parallel_options unused;
    unused.find_unused_parameters = true;
    auto x = self.share(samples(self.size * batch, 0).first);
    auto first = prepare_model(*run.context, seeded<two_heads>(0));
    auto second = prepare_model(*run.context, seeded<two_heads>(0), unused);
    auto sum = [](const two_heads::outputs& y) {
      return y.main.sum() + y.extra.sum();
    };
    for (int step = 0; step < 3; ++step) {
      { // Gradients of a window that is not over.
        auto guard = first.no_sync();
        first.forward(x).main.sum().backward();
      }
      run.report();
      sum(first.forward(x)).backward();
      run.report();
      second.forward(x).main.sum().backward();
      run.report();
      second.forward(x); // without a backward
      {
        at::NoGradGuard evaluation;
        first.forward(x);
      }
      run.context->new_checkpoint();
      run.report();
    }
    {
      auto gone = prepare_model(*run.context, seeded<two_heads>(0));
      gone.forward(x).main.sum().backward();
      refusal([&] { run.report(); });
    }
    run.report();
  });
}

TEST_P(broken_backwards, outputs_may_have_a_backward_each) {
  struct towers : torch::nn::Module {
    std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
      return {left(x), right(x)};
    }
    torch::nn::Linear left = register_module("left", torch::nn::Linear(20, 5));
    torch::nn::Linear right =
      register_module("right", torch::nn::Linear(20, 5));
  };
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto model = prepare_model(*run.context, seeded<towers>(self.rank));
    auto x = self.share(samples(self.size * batch, 0).first);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      auto [left, right] = model.forward(x);
      left.square().mean().backward();
      right.square().mean().backward();
      run.report();
      check_equal_on_ranks(self, gradients(model.module()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(over, broken_backwards, small_groups(), name_of);

} // namespace

} // namespace troupe::internal::test
