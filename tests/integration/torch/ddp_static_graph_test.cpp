#include <optional>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// c10d learns a static graph from the first backward. One that averaged nothing
// is not it.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class static_graph : public testing::TestWithParam<placement> {
protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }

  void on_ranks(const std::function<void(rank_of_test&)>& body) {
    for (auto& failure : run_ranks(GetParam(), body))
      EXPECT_EQ(failure, "");
  }
};

/// A model with a static graph on one rank.
struct subject {
  explicit subject(rank_of_test& self, data_parallel_options options = {})
    : self(self), run(self),
      model(prepare_model(*run.context, seeded<reuse>(0),
                          with_static_graph(std::move(options)))) {}

  static data_parallel_options with_static_graph(data_parallel_options x) {
    x.static_graph = true;
    return x;
  }

  void backward(int number) {
    auto [x, y] = samples(self.size * 8, number);
    cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
  }

  /// Makes three steps, all of which are averaged.
  void train() {
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = samples(self.size * 8, step);
      model.zero_grad();
      backward(step);
      check_close(gradients(model.module()), mean_of_ranks<reuse>(self, x, y),
                  1e-6);
      run.report();
    }
  }

  rank_of_test& self;
  context_of_test run;
  data_parallel_model<reuse> model;
};

/// Makes a gradient fail on its way to *x*.
struct failing {
  explicit failing(const at::Tensor& x) : x(x), hook(x.register_hook(fail)) {}
  ~failing() { x.remove_hook(hook); }

  static at::Tensor fail(const at::Tensor&) {
    throw std::runtime_error{"no memory"};
  }

  at::Tensor x;
  unsigned hook;
};

TEST_P(static_graph, may_have_an_output_outside_the_loss) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto model = prepare_model(*run.context, seeded<two_heads>(self.rank),
                               subject::with_static_graph({}));
    auto alone = seeded<two_heads>(0);
    for (int step = 0; step < 4; ++step) {
      model.zero_grad();
      alone->zero_grad();
      for (auto in_window : {true, false}) {
        if (in_window && step < 2)
          continue;
        std::optional<no_sync_guard> guard;
        if (in_window)
          guard.emplace(model.no_sync());
        auto [x, y] = samples(self.size * 8, 2 * step + in_window);
        cross_entropy(model.forward(self.share(x)).main, self.share(y))
          .backward();
        cross_entropy(alone->forward(x).main, y).backward();
      }
      run.report();
      check(!model->extra->weight.grad().defined(), "an unused head learns");
      check_close(gradients(model.module()), gradients(*alone), 1e-6);
      check_equal_on_ranks(self, gradients(model.module()));
    }
  });
}

// Before the first gradient came.
TEST_P(static_graph, is_not_learned_from_a_backward_that_failed_at_once) {
  on_ranks([](rank_of_test& self) {
    subject it{self};
    {
      failing first{it.model->head->bias};
      EXPECT_THROW(it.backward(9), std::runtime_error);
    }
    it.train();
  });
}

TEST_P(static_graph, is_not_learned_while_the_model_is_frozen_as_a_whole) {
  on_ranks([](rank_of_test& self) {
    subject it{self};
    auto x = self.share(samples(self.size * 8, 9).first).requires_grad_();
    set_trainable(it.model.module(), false);
    it.model.forward(x).square().mean().backward();
    set_trainable(it.model.module(), true);
    it.train();
  });
}

// Not on all ranks: it is no collective.
TEST_P(static_graph, is_not_learned_from_the_gradient_of_an_input) {
  on_ranks([](rank_of_test& self) {
    subject it{self};
    auto x = self.share(samples(self.size * 8, 9).first).requires_grad_();
    auto sum = it.model.forward(x).sum();
    if (self.rank == 0)
      torch::autograd::grad({sum}, {x});
    it.train();
  });
}

// One rank alone may still differentiate the graph afterwards.
TEST_P(static_graph, is_not_learned_after_its_first_backward_broke_off) {
  on_ranks([](rank_of_test& self) {
    subject it{self};
    auto x = self.share(samples(self.size * 8, 9).first).requires_grad_();
    auto sum = it.model.forward(x).sum();
    {
      failing last{it.model->trunk->weight};
      EXPECT_THROW(sum.backward({}, /*retain_graph=*/true), std::runtime_error);
    }
    it.model.zero_grad();
    if (self.rank == 0)
      torch::autograd::grad({sum}, {x});
    it.model.data_parallel().rebuild(self.group(1), false);
    it.train();
  });
}

TEST_P(static_graph, may_have_a_penalty_on_the_gradient_of_its_input) {
  on_ranks([](rank_of_test& self) {
    auto loss_of = [](const at::Tensor& x, auto&& forward) {
      auto output = forward(x);
      auto slope = torch::autograd::grad({output.sum()}, {x}, {}, true, true);
      return output.square().mean() + slope[0].square().mean();
    };
    subject it{self};
    auto alone = seeded<reuse>(0);
    for (int step = 0; step < 3; ++step) {
      auto x = samples(self.size * 8, step).first.requires_grad_();
      it.model.zero_grad();
      loss_of(self.share(x).detach().requires_grad_(), it.model).backward();
      alone->zero_grad();
      for (int rank = 0; rank < self.size; ++rank)
        (loss_of(self.share(x, rank).detach().requires_grad_(),
                 [&](auto& part) { return alone->forward(part); })
         / self.size)
          .backward();
      check_close(gradients(it.model.module()), gradients(*alone), 1e-6);
      it.run.report();
    }
  });
}

// The ranks that did not fail wait for gradients until the group ends.
TEST_P(static_graph, needs_another_group_if_its_first_backward_broke_off) {
  for (auto on_all : {true, false})
    on_ranks([on_all](rank_of_test& self) {
      subject it{self};
      if (on_all || self.rank + 1 == self.size) {
        {
          failing last{it.model->trunk->weight};
          EXPECT_THROW(it.backward(9), std::runtime_error);
        }
        auto message = refusal([&] { it.run.report(); });
        check(message.find("backward failed") != std::string::npos, message);
        it.model.zero_grad();
        it.run.report();
        message = refusal([&] { it.backward(9); });
        check(message.find("call `rebuild`") != std::string::npos, message);
      } else {
        EXPECT_ANY_THROW(it.backward(9));
        it.model.zero_grad();
      }
      it.model.data_parallel().drop();
      it.run.context->data_plane().reset();
      self.first = nullptr; // the last one to hold it on this rank
      it.model.data_parallel().rebuild(self.group(1), false);
      self.first = self.group(1);
      it.train();
    });
}

// The others have learned the graph then.
TEST_P(static_graph, needs_another_group_if_a_reduction_of_one_rank_failed) {
  on_ranks([](rank_of_test& self) {
    auto fails = self.rank + 1 == self.size;
    data_parallel_options options;
    options.comm_hook = [&](const group_ptr& group) {
      return std::make_unique<failing_hook>(group, fails);
    };
    subject it{self, options};
    if (fails)
      EXPECT_THROW(it.backward(9), std::runtime_error);
    else
      it.backward(9);
    it.model.zero_grad();
    if (fails) {
      auto message = refusal([&] { it.backward(9); });
      check(message.find("call `rebuild`") != std::string::npos, message);
    }
    fails = false;
    it.model.data_parallel().rebuild(self.group(1), false);
    it.backward(9);
    it.run.report();
    check_equal_on_ranks(self, gradients(it.model.module()));
  });
}

TEST_P(static_graph, may_begin_after_a_loss_that_is_not_of_its_output) {
  on_ranks([](rank_of_test& self) {
    subject it{self};
    auto x = self.share(samples(self.size * 8, 9).first).requires_grad_();
    set_trainable(it.model.module(), false);
    it.model.forward(x).sum().backward(); // averages nothing
    set_trainable(it.model.module(), true);
    auto message = refusal([&] { it.model->forward(x).sum().backward(); });
    check(message.find("from what forward returns") != std::string::npos,
          message);
    it.train();
  });
}

INSTANTIATE_TEST_SUITE_P(over, static_graph,
                         testing::Values(placement{false, false, 2},
                                         placement{true, false, 2},
                                         placement{true, false, 3}),
                         [](auto& x) { return x.param.name(); });

} // namespace

} // namespace troupe::internal::test
