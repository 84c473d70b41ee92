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

class static_graph : public test_on_ranks {};

data_parallel_options with_static_graph(data_parallel_options x = {}) {
  x.static_graph = true;
  return x;
}

/// A model with a static graph on one rank.
struct static_subject : subject<reuse> {
  explicit static_subject(rank_of_test& self, data_parallel_options x = {})
    : subject(self, with_static_graph(std::move(x))) {}

  /// Makes three steps, all of which are averaged.
  void train() {
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = samples(self.size * batch, step);
      model.zero_grad();
      backward(step);
      check_close(gradients(model.module()), mean_of_ranks<reuse>(self, x, y),
                  1e-6);
      run.report();
    }
  }
};

TEST_P(static_graph, may_have_an_output_outside_the_loss) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto model = prepare_model(*run.context, seeded<two_heads>(self.rank),
                               with_static_graph());
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
        auto [x, y] = samples(self.size * batch, 2 * step + in_window);
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
    static_subject it{self};
    {
      failing first{it.model->head->bias};
      EXPECT_THROW(it.backward(9), std::runtime_error);
    }
    it.train();
  });
}

TEST_P(static_graph, is_not_learned_while_the_model_is_frozen_as_a_whole) {
  on_ranks([](rank_of_test& self) {
    static_subject it{self};
    auto x = self.share(samples(self.size * batch, 9).first).requires_grad_();
    set_trainable(it.model.module(), false);
    it.model.forward(x).square().mean().backward();
    set_trainable(it.model.module(), true);
    it.train();
  });
}

// Not on all ranks: it is not a collective.
TEST_P(static_graph, is_not_learned_from_the_gradient_of_an_input) {
  on_ranks([](rank_of_test& self) {
    static_subject it{self};
    auto x = self.share(samples(self.size * batch, 9).first).requires_grad_();
    auto sum = it.model.forward(x).sum();
    if (self.rank == 0)
      torch::autograd::grad({sum}, {x});
    it.train();
  });
}

// One rank alone may still differentiate the graph afterwards.
TEST_P(static_graph, is_not_learned_after_its_first_backward_broke_off) {
  on_ranks([](rank_of_test& self) {
    static_subject it{self};
    auto x = self.share(samples(self.size * batch, 9).first).requires_grad_();
    auto sum = it.model.forward(x).sum();
    {
      failing last{it.model->trunk->weight};
      EXPECT_THROW(sum.backward({}, /*retain_graph=*/true), std::runtime_error);
    }
    it.model.zero_grad();
    if (self.rank == 0)
      torch::autograd::grad({sum}, {x});
    prepare_again(self, it.run, it.model, with_static_graph());
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
    static_subject it{self};
    auto alone = seeded<reuse>(0);
    for (int step = 0; step < 3; ++step) {
      auto x = samples(self.size * batch, step).first.requires_grad_();
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
      static_subject it{self};
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
        check(message.find("leave the train loop") != std::string::npos,
              message);
      } else {
        EXPECT_ANY_THROW(it.backward(9));
        it.model.zero_grad();
      }
      model_access::ddp(it.model).drop();
      rank_access{*it.run.context}.data_plane().reset();
      self.first = nullptr; // the last one to hold it on this rank
      prepare_again(self, it.run, it.model, with_static_graph());
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
    static_subject it{self, options};
    if (fails)
      EXPECT_THROW(it.backward(9), std::runtime_error);
    else
      it.backward(9);
    it.model.zero_grad();
    if (fails) {
      auto message = refusal([&] { it.backward(9); });
      check(message.find("leave the train loop") != std::string::npos, message);
    }
    fails = false;
    prepare_again(self, it.run, it.model, with_static_graph(options));
    it.backward(9);
    it.run.report();
    check_equal_on_ranks(self, gradients(it.model.module()));
  });
}

TEST_P(static_graph, may_begin_after_a_loss_that_is_not_of_its_output) {
  on_ranks([](rank_of_test& self) {
    static_subject it{self};
    auto x = self.share(samples(self.size * batch, 9).first).requires_grad_();
    set_trainable(it.model.module(), false);
    it.model.forward(x).sum().backward(); // averages nothing
    set_trainable(it.model.module(), true);
    auto message = refusal([&] { it.model->forward(x).sum().backward(); });
    check(message.find("from what forward returns") != std::string::npos,
          message);
    it.train();
  });
}

INSTANTIATE_TEST_SUITE_P(over, static_graph, small_groups(), name_of);

class any_static_graph : public test_on_ranks {};

TEST_P(any_static_graph, a_static_graph_may_add_up_small_batches_later) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.static_graph = true;
    auto model = make_ddp(seeded<reuse>(self.rank), self.group(), options);
    auto alone = seeded<reuse>(0);
    auto train = [&](int number) {
      auto [x, y] = samples(self.size * batch, number);
      cross_entropy(model(self.share(x)), self.share(y)).backward();
      cross_entropy(alone->forward(x), y).backward();
    };
    for (int step = 0; step < 4; ++step) {
      model.zero_grad();
      alone->zero_grad();
      if (step >= 2) {
        auto guard = model.no_sync();
        train(2 * step);
      }
      train(2 * step + 1);
      check_close(gradients(model.module()), gradients(*alone), 1e-6);
    }
  });
}

// A window of small batches, as of `epoch_loop`, in every step from the first.
TEST_P(any_static_graph,
       a_static_graph_may_add_up_small_batches_from_the_start) {
  for (auto views : {false, true})
    for (int parts : {2, 3})
      on_ranks([views, parts](rank_of_test& self) {
        data_parallel_options options;
        options.static_graph = true;
        options.gradient_as_bucket_view = views;
        auto model = make_ddp(seeded<reuse>(self.rank), self.group(), options);
        auto alone = seeded<reuse>(0);
        torch::optim::SGD ours{model.parameters(), sgd()};
        torch::optim::SGD theirs{alone->parameters(), sgd()};
        for (int step = 0; step < 5; ++step) {
          model.zero_grad();
          alone->zero_grad();
          for (int part = 0; part < parts; ++part) {
            std::optional<no_sync_guard> guard;
            if (part + 1 < parts)
              guard.emplace(model.no_sync());
            auto [x, y] = samples(self.size * batch, parts * step + part);
            cross_entropy(model(self.share(x)), self.share(y)).backward();
            cross_entropy(alone->forward(x), y).backward();
          }
          check_close(gradients(model.module()), gradients(*alone), 1e-6);
          ours.step();
          theirs.step();
          check_equal_on_ranks(self, model.parameters());
        }
        check_close(model.parameters(), alone->parameters(), 1e-5);
      });
}

TEST_P(any_static_graph, a_static_graph_needs_a_batch_of_every_rank_in_a_join) {
  on_ranks([](rank_of_test& self) {
    if (self.size == 1)
      return;
    data_parallel_options options;
    options.static_graph = true;
    auto model = make_ddp(seeded<mlp>(self.rank), self.group(), options);
    auto train = [&] {
      model.join([&] {
        for (int step = 0; step < self.rank; ++step) {
          auto [x, y] = samples(self.size * batch, step);
          model.zero_grad();
          cross_entropy(model(self.share(x)), self.share(y)).backward();
        }
      });
    };
    if (self.rank == 0) {
      auto message = refusal(train);
      check(message.find("rank 0 has no batch") != std::string::npos, message);
    } else {
      bool failed = false;
      try {
        train();
      } catch (const std::exception&) {
        failed = true;
      }
      check(failed, "it trained without rank 0");
    }
  });
}

// The loss does not come from the output, but from what forward leaves behind.
TEST_P(any_static_graph, a_static_graph_needs_a_loss_of_its_output) {
  struct secretive : torch::nn::Module {
    secretive() { register_module("layer", layer); }
    double forward(const at::Tensor& x) {
      loss = layer(x).square().mean();
      return loss.item<double>();
    }
    torch::nn::Linear layer{20, 5};
    at::Tensor loss;
  };
  on_ranks([](rank_of_test& self) {
    if (self.size == 1)
      return;
    data_parallel_options options;
    options.static_graph = true;
    auto model = make_ddp(std::make_shared<secretive>(), self.group(), options);
    model(torch::ones({1, 20}));
    auto message = refusal([&] { model->loss.backward(); });
    check(message.find("from what forward returns") != std::string::npos,
          message);
  });
}

INSTANTIATE_TEST_SUITE_P(over, any_static_graph, all_groups(), name_of);

} // namespace

} // namespace troupe::internal::test
