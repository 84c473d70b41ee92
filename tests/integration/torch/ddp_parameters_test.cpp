#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// Which parameters are averaged when the model changes between steps, and what
// becomes of a step whose gradients were not averaged.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class changing_parameters : public testing::TestWithParam<placement> {
protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }

  void on_ranks(const std::function<void(rank_of_test&)>& body) {
    for (auto& failure : run_ranks(GetParam(), body))
      EXPECT_EQ(failure, "");
  }
};

/// Every way in which the Reducer learns what is used.
std::vector<data_parallel_options> ways_to_train() {
  std::vector<data_parallel_options> result(4);
  result[1].find_unused_parameters = true;
  result[2].static_graph = true;
  result[3].gradient_as_bucket_view = false;
  result[3].sync_buffers = false;
  return result;
}

TEST_P(changing_parameters, a_layer_counts_from_the_step_that_unfreezes_it) {
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
        auto [x, y] = samples(self.size * 8, step);
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

TEST_P(changing_parameters, a_new_layer_begins_with_the_weights_of_rank_zero) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      auto inner = seeded<mlp>(self.rank);
      auto model = make_ddp(inner, self.group(), options);
      auto train = [&](int number) {
        auto [x, y] = samples(self.size * 8, number);
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
TEST_P(changing_parameters, an_unfrozen_layer_needs_the_forward_of_the_model) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto inner = seeded<mlp>(0);
    set_trainable(*inner->third, false);
    data_parallel_options options;
    options.ignored = {"third.weight"};
    auto model = prepare_model(*run.context, inner, options);
    auto x = self.share(samples(self.size * 8, 0).first);
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

// As the critic of a GAN during the steps of the generator.
TEST_P(changing_parameters, a_model_frozen_as_a_whole_passes_gradients_on) {
  on_ranks([](rank_of_test& self) {
    auto generator = make_ddp(torch::nn::Linear{20, 20}, self.group());
    auto critic = make_ddp(seeded<mlp>(self.rank), self.group());
    auto reducer = critic.data_parallel().reducer();
    for (int step = 0; step < 3; ++step) {
      auto x = self.share(samples(self.size * 8, step).first);
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
    check(critic.data_parallel().reducer() == reducer,
          "the same parameters were counted again");
  });
}

// On one rank only, so that the others have to learn of it.
TEST_P(changing_parameters, a_reducer_that_cannot_be_made_ends_the_group) {
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
      auto [x, y] = samples(self.size * 8, 0);
      cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
    };
    backward();
    set_trainable(*inner->first, true);
    if (last)
      EXPECT_THROW(backward(), std::runtime_error);
    else
      refusal(backward);
    for (auto& message :
         {refusal(backward), refusal([&] { run.report(); }),
          refusal([&] { model.data_parallel().check_replicas(); })})
      check(message.find("was dropped") != std::string::npos, message);
    model.data_parallel().rebuild(self.group(1), false);
    model.zero_grad();
    backward();
    run.report();
    check(gradients(*inner).size() == 6, "a gradient is missing");
    check_equal_on_ranks(self, gradients(*inner));
  });
}

TEST_P(changing_parameters, a_change_that_was_refused_is_tried_again) {
  for (auto mended : {false, true})
    on_ranks([mended](rank_of_test& self) {
      auto inner = seeded<mlp>(0);
      set_trainable(*inner->second, false);
      set_trainable(*inner->third, false);
      auto model = make_ddp(inner, self.group());
      auto backward = [&] {
        auto [x, y] = samples(self.size * 8, 0);
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

TEST_P(changing_parameters, a_join_keeps_to_the_parameters_of_its_begin) {
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
TEST_P(changing_parameters, a_join_follows_the_changes_before_it) {
  for (auto type : {at::kFloat, at::kDouble})
    for (auto& options : ways_to_train())
      on_ranks([&options, type](rank_of_test& self) {
        context_of_test run{self};
        auto inner = seeded<mlp>(self.rank);
        set_trainable(*inner->first, false);
        auto model = prepare_model(*run.context, inner, options);
        torch::optim::SGD optimizer{inner->parameters(), sgd()};
        auto x = self.share(samples(self.size * 8, 0).first).to(type);
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

TEST_P(changing_parameters, a_join_for_evaluation_follows_no_changes) {
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

TEST_P(changing_parameters, a_join_keeps_to_the_types_of_its_begin) {
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

// Forth and back leaves the addresses, the types and the values as they were.
TEST_P(changing_parameters, weights_of_another_type_are_averaged_from_then_on) {
  for (auto& options : ways_to_train())
    for (auto back : {false, true})
      for (auto in_window : {false, true})
        on_ranks([=, &options](rank_of_test& self) {
          context_of_test run{self};
          auto inner = seeded<mlp>(self.rank);
          auto alone = seeded<mlp>(0);
          auto model = prepare_model(*run.context, inner, options);
          auto backward = [&](int number) {
            auto [x, y] = samples(self.size * 8, number);
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
TEST_P(changing_parameters, one_rank_may_change_a_type_forth_and_back) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      context_of_test run{self};
      auto inner = seeded<mlp>(self.rank);
      auto alone = seeded<mlp>(0);
      auto model = prepare_model(*run.context, inner, options);
      auto reducer = model.data_parallel().reducer();
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
        auto [x, y] = samples(self.size * 8, step);
        model.zero_grad();
        alone->zero_grad();
        cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
        cross_entropy(alone->forward(x), y).backward();
        check_close(gradients(*inner), gradients(*alone), 1e-6);
        check_equal_on_ranks(self, gradients(*inner));
      }
      check(model.data_parallel().reducer() == reducer,
            "the same parameters were counted again");
    });
}

TEST_P(changing_parameters, weights_of_another_type_need_the_models_forward) {
  for (auto& options : ways_to_train())
    for (auto back : {false, true})
      on_ranks([&options, back](rank_of_test& self) {
        context_of_test run{self};
        auto inner = seeded<mlp>(self.rank);
        auto model = prepare_model(*run.context, inner, options);
        auto x = self.share(samples(self.size * 8, 0).first);
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

// The gradients of the layers that wait were averaged before.
TEST_P(changing_parameters, layers_may_be_trained_in_turn) {
  for (auto& options : ways_to_train())
    on_ranks([&options](rank_of_test& self) {
      context_of_test run{self};
      auto inner = seeded<mlp>(0);
      set_trainable(*inner->second, false);
      auto model = prepare_model(*run.context, inner, options);
      auto x = self.share(samples(self.size * 8, 0).first);
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

TEST_P(changing_parameters, options_that_contradict_or_miss_are_refused) {
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

TEST_P(changing_parameters, a_step_that_left_parameters_out_is_not_reported) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto model = prepare_model(*run.context, seeded<two_heads>(0));
    torch::optim::SGD optimizer{model.parameters(), sgd()};
    auto [x, y] = samples(self.size * 8, 0);
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

TEST_P(changing_parameters, what_a_failed_backward_left_is_not_reported) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto model = prepare_model(*run.context, seeded<mlp>(0));
    model->first->weight.register_hook([](const at::Tensor& x) -> at::Tensor {
      throw std::runtime_error{"no memory"};
      return x;
    });
    auto [x, y] = samples(self.size * 8, 0);
    auto loss = cross_entropy(model.forward(self.share(x)), self.share(y));
    EXPECT_THROW(loss.backward(), std::runtime_error);
    for (auto rebuilds : {false, true}) {
      if (rebuilds)
        model.data_parallel().rebuild(self.group(1), false);
      for (auto& message : {refusal([&] { run.report(); }),
                            refusal([&] { model.forward(self.share(x)); })})
        check(message.find("backward failed") != std::string::npos, message);
    }
    model.zero_grad();
    run.report();
    model.forward(self.share(x));
  });
}

// In a callback of c10d, when all gradients of the backward have come.
TEST_P(changing_parameters, what_a_failed_reduction_left_is_not_reported) {
  for (auto options : ways_to_train())
    for (auto rebuilds : {false, true})
      on_ranks([&options, rebuilds](rank_of_test& self) {
        context_of_test run{self};
        bool fails = false;
        auto with_hook = options;
        with_hook.comm_hook = [&](const group_ptr& group) {
          return std::make_unique<failing_hook>(group, fails);
        };
        auto inner = seeded<mlp>(0);
        auto model = prepare_model(*run.context, inner, with_hook);
        auto x = self.share(samples(self.size * 8, 0).first);
        auto backward = [&] { model.forward(x).sum().backward(); };
        backward();
        run.report();
        model.zero_grad();
        fails = self.rank + 1 == self.size;
        if (fails)
          EXPECT_THROW(backward(), std::runtime_error);
        else
          backward();
        if (rebuilds)
          model.data_parallel().rebuild(self.group(1), false);
        if (fails)
          for (auto& message :
               {refusal([&] { run.report(); }), refusal(backward)})
            check(message.find("backward failed") != std::string::npos,
                  message);
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

TEST_P(changing_parameters, a_failed_backward_is_over_with_its_gradients) {
  for (auto of_model : {false, true})
    on_ranks([of_model](rank_of_test& self) {
      context_of_test run{self};
      auto inner = seeded<mlp>(0);
      data_parallel_options options;
      options.gradient_as_bucket_view = of_model; // the optimizer refuses them
      auto model = prepare_model(*run.context, inner, options);
      torch::optim::SGD optimizer{model.parameters(), sgd()};
      auto fails = true;
      inner->first->weight.register_hook([&](const at::Tensor& x) {
        return fails ? throw std::runtime_error{"no memory"} : x;
      });
      auto x = self.share(samples(self.size * 8, 0).first);
      auto backward = [&] { model.forward(x).sum().backward(); };
      EXPECT_THROW(backward(), std::runtime_error);
      fails = false;
      if (of_model) {
        model.zero_grad();
        run.report();
        auto message = refusal(backward);
        check(message.find("call `rebuild`") != std::string::npos, message);
      }
      model.data_parallel().rebuild(self.group(1), false);
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
};

/// A model on one rank and a backward that breaks in one of these ways.
struct broken_backward {
  broken_backward(rank_of_test& self, broken how)
    : run(self), inner(seeded<two_heads>(0)), how(how),
      model(prepare_model(*run.context, inner, options_for(how))),
      optimizer(model.parameters(), {0.1}), // has no state
      x(self.share(samples(self.size * 8, 0).first)) {}

  static data_parallel_options options_for(broken how) {
    data_parallel_options result;
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
        auto& weight = inner->trunk->weight;
        auto hook = weight.register_hook([](const at::Tensor& x) -> at::Tensor {
          throw std::runtime_error{"no memory"};
          return x;
        });
        EXPECT_THROW(loss(model.forward(x).main).backward(),
                     std::runtime_error);
        weight.remove_hook(hook);
        break;
      }
    }
  }

  context_of_test run;
  std::shared_ptr<two_heads> inner;
  broken how;
  data_parallel_model<two_heads> model;
  torch::optim::SGD optimizer;
  at::Tensor x;
};

constexpr broken all_broken[]{broken::second_backward, broken::own_forward,
                              broken::another_type, broken::static_graph,
                              broken::failed};

TEST_P(changing_parameters, what_a_refused_backward_left_is_not_reported) {
  for (auto how : all_broken)
    for (auto of_model : {false, true})
      if (how != broken::failed)
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

TEST_P(changing_parameters, a_step_with_what_a_backward_left_is_not_reported) {
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
        check(message.find("after a backward that failed or was refused")
                != std::string::npos,
              message);
        it.model.data_parallel().rebuild(self.group(1), true);
        it.train();
        check_equal_on_ranks(self, it.model.parameters());
      });
}

// As a program that saves rank 0's model in half precision.
TEST_P(changing_parameters, weights_that_one_rank_rounds_are_not_reported) {
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
            auto [x, y] = samples(self.size * 8, number);
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
          refusal([&] { model.data_parallel().check_replicas(); });
          model.data_parallel().rebuild(self.group(1), true);
          train(2);
          run.report();
          round(*inner); // alike on all ranks
          refusal([&] { run.report(); });
          model.data_parallel().check_replicas();
          run.report();
          train(3);
          run.report();
          check_equal_on_ranks(self, model.parameters());
        });
}

TEST_P(changing_parameters,
       weights_that_no_narrower_type_changed_are_reported) {
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
    auto x = self.share(samples(self.size * 8, 0, 36).first);
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
    model.data_parallel().check_replicas();
  });
}

TEST_P(changing_parameters, gradients_that_wait_for_nothing_are_reported) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    data_parallel_options unused;
    unused.find_unused_parameters = true;
    auto x = self.share(samples(self.size * 8, 0).first);
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

TEST_P(changing_parameters, replicas_that_differ_are_reported_on_every_rank) {
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
    model.data_parallel().check_replicas();
    add(model->second->weight);
    auto message = refusal([&] { model.data_parallel().check_replicas(); });
    check(message.find("parameter second.weight of rank "
                       + std::to_string(self.size - 1) + " differs")
            != std::string::npos,
          message);
  });
}

// Of equal shapes, so that nothing else distinguishes them.
TEST_P(changing_parameters, ranks_that_would_mix_parameters_are_refused) {
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

// As docs/decisions/averaged_gradients.md has it.
TEST_P(changing_parameters, lbfgs_takes_equal_steps_with_the_mean_of_losses) {
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto& context = *run.context;
    auto model = prepare_model(context, seeded<mlp>(self.rank));
    auto [all_x, all_y] = samples(self.size * 8, 0);
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
      return all_reduce_sum(context, loss.detach().clone())
             / context.world_size();
    };
    auto first = mean_loss().item<double>();
    for (int step = 0; step < 3; ++step)
      optimizer.step(mean_loss);
    model.data_parallel().check_replicas();
    auto last = mean_loss().item<double>();
    check(last < first,
          "loss " + std::to_string(first) + " to " + std::to_string(last));
  });
}

TEST_P(changing_parameters, outputs_may_have_a_backward_each) {
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
    auto x = self.share(samples(self.size * 8, 0).first);
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

INSTANTIATE_TEST_SUITE_P(over, changing_parameters,
                         testing::Values(placement{false, false, 2},
                                         placement{true, false, 2},
                                         placement{true, false, 3}),
                         [](auto& x) { return x.param.name(); });

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

} // namespace

} // namespace troupe::internal::test
