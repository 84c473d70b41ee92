#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
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
    reducer_counts counts;
    auto model = make_ddp(inner, self.group(), counted(counts));
    auto x = torch::ones({4, 20});
    model.forward(x).mean().backward();
    inner->to(at::kDouble);
    {
      at::NoGradGuard no_grad;
      model.join([&] { model.forward(x.to(at::kDouble)); });
    }
    inner->to(at::kFloat);
    model.zero_grad();
    model.forward(x).mean().backward();
    check(counts.made == 1, "an evaluation counted the parameters again");
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

enum class after_join {
  continues,      ///< With the optimizer as it is.
  starts_afresh,  ///< With a new optimizer.
  continues_join, ///< In another join.
};

/// Trains in a join, where the last rank has *more* steps, then in further
/// steps of all. Returns what refuses those.
template <class Optimizer, class Options>
std::string train_past_a_join(rank_of_test& self, const Options& options,
                              int more,
                              after_join then = after_join::continues) {
  subject<mlp> it{self};
  auto optimizer = std::make_unique<Optimizer>(it.model.parameters(), options);
  auto step = [&](int number) {
    it.model.zero_grad();
    it.backward(number);
    optimizer->step();
  };
  auto last = self.rank + 1 == self.size;
  it.model.join([&] {
    for (int i = 0; i < 2 + (last ? more : 0); ++i)
      step(i);
  });
  check_equal_on_ranks(self, it.model.parameters());
  if (then == after_join::starts_afresh)
    optimizer = std::make_unique<Optimizer>(it.model.parameters(), options);
  auto two_steps = [&] {
    step(5);
    step(6);
  };
  try {
    if (then == after_join::continues_join)
      it.model.join(two_steps);
    else
      two_steps();
  } catch (const train_error& e) {
    return e.what();
  }
  check_equal_on_ranks(self, it.model.parameters());
  return {};
}

bool names_the_remedy(const std::string& message) {
  return message.find("create a new optimizer on all ranks or copy its state")
         != std::string::npos;
}

TEST_P(changes_around_a_join, state_of_optimizers_that_differs_is_refused) {
  for (auto then : {after_join::continues, after_join::continues_join})
    on_ranks([then](rank_of_test& self) {
      torch::optim::AdamOptions adam{1e-2};
      for (auto& message :
           {train_past_a_join<torch::optim::SGD>(self, sgd(), 2, then),
            train_past_a_join<torch::optim::Adam>(self, adam, 2, then)})
        check(names_the_remedy(message), message);
    });
}

TEST_P(changes_around_a_join, optimizers_with_equal_state_are_not_refused) {
  on_ranks([](rank_of_test& self) {
    using torch::optim::Adam;
    torch::optim::AdamOptions adam{1e-2};
    torch::optim::SGDOptions plain{0.1};
    for (auto& message :
         {train_past_a_join<Adam>(self, adam, 0),
          train_past_a_join<Adam>(self, adam, 0, after_join::continues_join),
          train_past_a_join<Adam>(self, adam, 2, after_join::starts_afresh),
          train_past_a_join<torch::optim::SGD>(self, plain, 2),
          train_past_a_join<torch::optim::SGD>(self, plain, 2,
                                               after_join::continues_join)})
      check(message.empty(), message);
  });
}

// Which a join of one step each would hide.
TEST_P(changes_around_a_join, state_that_differs_is_refused_at_a_joins_end) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    auto steps = [&](int n) {
      it.model.join([&] {
        for (int i = 0; i < n; ++i) {
          it.model.zero_grad();
          it.backward(i);
          it.optimizer.step();
        }
      });
    };
    steps(1 + self.rank);
    auto message = refusal([&] { steps(1); });
    check(names_the_remedy(message), message);
  });
}

TEST_P(changes_around_a_join, differing_state_is_refused_until_weights_agree) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    auto step = [&](int number) {
      it.model.zero_grad();
      it.backward(number);
      it.optimizer.step();
    };
    it.model.join([&] {
      for (int i = 0; i < 1 + self.rank; ++i)
        step(i);
    });
    step(5);
    for (auto& message : {refusal([&] { step(6); }), refusal([&] { step(6); }),
                          refusal([&] { it.run.report(); })})
      check(names_the_remedy(message), message);
    {
      at::NoGradGuard no_grad;
      for (auto& x : it.model.parameters())
        x.fill_(0.1);
    }
    it.model.check_replicas();
    it.run.report();
  });
}

/// One step of plain SGD, with the samples *number*.
void step_plainly(subject<mlp>& it, int number) {
  it.model.zero_grad();
  it.backward(number);
  torch::optim::SGD{it.model.parameters(), {0.1}}.step();
}

/// Copies weights: the ranks compare them after their next step.
void join_unevenly(subject<mlp>& it) {
  it.model.join([&] {
    for (int i = 0; i < 1 + it.self.rank; ++i)
      step_plainly(it, i);
  });
}

// The reductions were made: others compare weights at their next forward.
TEST_P(changes_around_a_join, a_backward_that_failed_here_is_compared_by_all) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    join_unevenly(it);
    if (self.rank + 1 < self.size) {
      step_plainly(it, 3);
    } else {
      it.model.zero_grad();
      auto loss = it.model.forward(torch::ones({4, 20})).mean();
      // Called after the callback in which c10d waits for the reductions.
      loss.register_hook([](const at::Tensor&) {
        auto& engine = torch::autograd::Engine::get_default_engine();
        engine.queue_callback([&engine] {
          engine.queue_callback([] { throw std::runtime_error{"no memory"}; });
        });
      });
      auto failed = false;
      try {
        loss.backward();
      } catch (const std::runtime_error&) {
        failed = true;
      }
      check(failed, "backward did not fail");
      it.model.zero_grad();
    }
    auto message = refusal([&] { step_plainly(it, 4); });
    check(message.find("differs from that of rank 0") != std::string::npos,
          message);
  });
}

TEST_P(changes_around_a_join, a_forward_that_is_tried_again_compares_nothing) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    join_unevenly(it);
    if (self.rank + 1 == self.size) {
      auto failed = false;
      try {
        it.model.forward(torch::ones({4, 3}));
      } catch (const c10::Error&) {
        failed = true;
      }
      check(failed, "forward did not fail");
    }
    step_plainly(it, 3);
    step_plainly(it, 4);
    check_equal_on_ranks(self, it.model.parameters());
  });
}

TEST_P(changes_around_a_join, weights_of_a_hook_or_without_a_check_may_differ) {
  on_ranks([](rank_of_test& self) {
    std::vector<data_parallel_options> ways(2);
    ways[0].check_after_copy = false;
    ways[1].comm_hook = [](const group_ptr& group) {
      return std::make_unique<summing_hook>(group);
    };
    for (auto& options : ways) {
      subject<mlp> it{self, options};
      join_unevenly(it);
      step_plainly(it, 3);
      {
        at::NoGradGuard no_grad;
        it.model->first->weight.add_(self.rank);
      }
      step_plainly(it, 4);
      it.model.join([&] { step_plainly(it, 5); });
      check_equal_on_ranks(self, it.model.parameters());
    }
  });
}

TEST_P(changes_around_a_join, optimizers_are_not_blamed_for_other_differences) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    join_unevenly(it);
    step_plainly(it, 3);
    {
      at::NoGradGuard no_grad;
      it.model->first->weight.add_(self.rank);
    }
    auto message = refusal([&] { it.model.check_replicas(); });
    check(!names_the_remedy(message), message);
    it.run.report(); // nor noted
  });
}

TEST_P(changes_around_a_join, a_healthy_epoch_after_it_compares_weights_once) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    torch::optim::SGD optimizer{it.model.parameters(), {0.1}};
    auto step = [&](int number) {
      it.model.zero_grad();
      it.backward(number);
      optimizer.step();
    };
    it.model.join([&] {
      for (int i = 0; i < 1 + self.rank; ++i)
        step(i);
    });
    step(0);
    step(1); // compares
    {
      at::NoGradGuard no_grad;
      it.model->first->weight.add_(self.rank);
    }
    step(2); // would find that if it compared
    refusal([&] { it.model.check_replicas(); });
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
