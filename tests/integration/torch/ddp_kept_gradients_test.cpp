#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/optim/fused_optimizer.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// What becomes of gradients that `no_sync` kept on a rank: they are averaged
// with the next ones, or no report stores what was made of them.

namespace troupe::internal::test {

namespace {

using torch::nn::functional::cross_entropy;

class gradients_kept_on_a_rank : public test_on_ranks {};

/// Layers that a forward uses or not.
struct towers : torch::nn::Module {
  towers() {
    for (auto name : {"a", "b", "c"})
      layers.push_back(register_module(name, torch::nn::Linear(20, 5)));
  }
  at::Tensor forward(const at::Tensor& x, const std::string& used) {
    at::Tensor sum;
    for (auto name : used) {
      auto y = layers[static_cast<size_t>(name - 'a')](x);
      sum = sum.defined() ? sum + y : y;
    }
    return sum;
  }
  std::vector<torch::nn::Linear> layers;
};

/// How the Reducer comes to be another one.
enum class change { freezes, unfreezes, prepares_again };

// The layer of the window's first part has no gradient in its last part.
TEST_P(gradients_kept_on_a_rank, are_averaged_if_the_trained_layers_change) {
  for (auto views : {false, true})
    for (auto inside : {false, true})
      for (auto how :
           {change::freezes, change::unfreezes, change::prepares_again})
        on_ranks([=](rank_of_test& self) {
          data_parallel_options options;
          options.find_unused_parameters = true;
          options.gradient_as_bucket_view = views;
          auto inner = seeded<towers>(self.rank);
          auto& third = *inner->layers[2];
          set_trainable(third, how != change::unfreezes);
          auto model = make_ddp(inner, self.group(), options);
          auto backward = [&](int number, const std::string& used) {
            auto [x, y] = samples(self.size * batch, number);
            cross_entropy(model.forward(self.share(x), used), self.share(y))
              .backward();
          };
          auto change = [&] {
            if (how == change::prepares_again)
              model = make_ddp(inner, self.group(1), options);
            else
              set_trainable(third, how == change::unfreezes);
          };
          backward(0, "ab");
          model.zero_grad();
          if (!inside)
            change();
          {
            auto guard = model.no_sync();
            backward(1, how == change::unfreezes && !inside ? "ac" : "a");
          }
          if (inside)
            change();
          backward(2, "b");
          check(gradients(*inner).size()
                  == (how == change::unfreezes && !inside ? 6 : 4),
                "gradients are missing");
          check_equal_on_ranks(self, gradients(*inner));
        });
}

TEST_P(gradients_kept_on_a_rank, keep_their_layer_from_being_frozen) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.find_unused_parameters = true;
    auto model = make_ddp(seeded<towers>(0), self.group(), options);
    auto last = self.rank + 1 == self.size;
    auto x = self.share(samples(self.size * batch, 0).first);
    auto backward = [&](const std::string& used) {
      model.forward(x, used).square().mean().backward();
    };
    {
      auto guard = model.no_sync();
      backward(last ? "ab" : "b");
    }
    set_trainable(*model->layers[0], false);
    auto message = refusal([&] { backward("b"); });
    check(message.find("rank " + std::to_string(self.size - 1))
            != std::string::npos,
          message);
    check(!last || message.find("parameter a.weight") != std::string::npos,
          message);
    model.zero_grad();
    backward("b");
    check_equal_on_ranks(self, gradients(model.module()));
  });
}

// Whichever layer the optimizer has: the last one's gradients come first.
TEST_P(gradients_kept_on_a_rank, are_reported_if_one_layer_steps_with_them) {
  for (auto name : {"first", "second", "third"})
    on_ranks([name](rank_of_test& self) {
      subject<mlp> it{self};
      auto layer = it.model->named_children()[name];
      torch::optim::SGD optimizer{layer->parameters(), sgd()};
      it.backward_alone();
      it.run.report();
      optimizer.step();
      it.model.zero_grad();
      auto message = refusal([&] { it.run.report(); });
      check(message.find("parameter " + std::string{name} + ".weight was")
              != std::string::npos,
            message);
    });
}

// A join's forwards do not compare weights.
TEST_P(gradients_kept_on_a_rank, are_not_forgotten_for_an_averaged_backward) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    it.model.join([&] {
      it.backward_alone();
      it.optimizer.step();
      it.backward();
      refusal([&] { it.run.report(); });
    });
    it.run.report(); // The end of the join made the weights equal.
    check_equal_on_ranks(self, it.model.parameters());
  });
}

TEST_P(gradients_kept_on_a_rank, are_known_after_weights_were_compared) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    it.backward_alone();
    it.model.check_replicas();
    it.run.report();
    it.optimizer.step();
    refusal([&] { it.run.report(); });
  });
}

// Ranks need not agree on whether there are any.
TEST_P(gradients_kept_on_a_rank, may_exist_on_some_ranks_only) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    auto [x, y] = samples(self.size * batch, 0);
    for (int step = 0; step < 3; ++step) {
      {
        auto guard = it.model.no_sync();
        auto loss =
          cross_entropy(it.model.forward(self.share(x)), self.share(y));
        if (self.rank == 0)
          loss.backward();
      }
      cross_entropy(it.model.forward(self.share(x)), self.share(y)).backward();
      it.optimizer.step();
      it.model.zero_grad();
      it.run.report();
    }
    check_equal_on_ranks(self, it.model.parameters());
  });
}

// With buffers, which the first forward after a synchronized one sends.
TEST_P(gradients_kept_on_a_rank, may_be_of_more_forwards_than_on_others) {
  on_ranks([](rank_of_test& self) {
    subject<convnet> it{self};
    for (int step = 0; step < 3; ++step) {
      for (int part = 0; part <= self.rank; ++part) {
        auto guard = it.model.no_sync();
        it.backward(0, 36);
      }
      it.backward(0, 36);
      check_equal_on_ranks(self, gradients(it.model.module()));
      it.model.zero_grad();
      it.run.report();
    }
  });
}

TEST_P(gradients_kept_on_a_rank, belong_to_layers_of_the_static_graph) {
  for (auto views : {false, true})
    on_ranks([views](rank_of_test& self) {
      data_parallel_options options;
      options.static_graph = true;
      options.gradient_as_bucket_view = views;
      auto model = make_ddp(seeded<towers>(0), self.group(), options);
      auto x = self.share(samples(self.size * batch, 0).first);
      auto backward = [&](const std::string& used) {
        model.forward(x, used).square().mean().backward();
      };
      backward("ab");
      auto guard = model.no_sync();
      backward("a");
      auto message = refusal([&] { backward("c"); });
      check(message.find("parameter c.") != std::string::npos, message);
    });
}

TEST_P(gradients_kept_on_a_rank,
       a_step_with_gradients_of_one_rank_is_reported) {
  for (auto fused : {false, true})
    on_ranks([fused](rank_of_test& self) {
      subject<mlp> it{self};
      fused_sgd ours{it.model.parameters(), {.lr = 0.1}};
      it.backward();
      it.optimizer.step();
      it.model.zero_grad();
      it.backward_alone(); // a last window, which the epoch's end cuts short
      it.run.report();
      if (fused)
        ours.step();
      else
        it.optimizer.step();
      it.model.zero_grad();
      auto message = refusal([&] { it.run.report(); });
      check(message.find("no_sync() kept on this rank") != std::string::npos,
            message);
      message = refusal([&] { it.backward(); });
      check(message.find("parameter first.weight of rank "
                         + std::to_string(self.size - 1)
                         + " differs from that of rank 0")
              != std::string::npos,
            message);
    });
}

TEST_P(gradients_kept_on_a_rank, weights_that_ranks_change_alike_are_fine) {
  on_ranks([](rank_of_test& self) {
    subject<mlp> it{self};
    for (int step = 0; step < 3; ++step) {
      it.backward_alone();
      {
        at::NoGradGuard no_grad;
        for (auto& x : it.model.parameters())
          x.clamp_(-0.2, 0.2);
      }
      it.backward();
      it.optimizer.step();
      it.model.zero_grad();
      it.run.report();
    }
    it.backward_alone();
    it.optimizer.step();
    for (auto& x : it.model.parameters()) {
      std::vector<at::Tensor> sum{x.detach()};
      self.group()->allreduce(sum)->wait();
      sum[0].div_(self.size);
    }
    it.model.check_replicas();
    it.run.report();
    check_equal_on_ranks(self, it.model.parameters());
  });
}

// A change of the type is one of the values, and then the model is used on.
// Of the values, which are the same, nothing is seen.
TEST_P(gradients_kept_on_a_rank, a_type_of_one_layer_that_changes_is_reported) {
  struct mixed : torch::nn::Module {
    mixed()
      : first(register_module("first", torch::nn::Linear(20, 4))),
        second(register_module("second", torch::nn::Linear(4, 5))) {
      second->to(at::kDouble);
    }
    at::Tensor forward(const at::Tensor& x) {
      return second(first(x).to(at::kDouble));
    }
    torch::nn::Linear first, second;
  };
  on_ranks([](rank_of_test& self) {
    context_of_test run{self};
    auto inner = seeded<mixed>(0);
    inner->first->to(at::kBFloat16);
    inner->first->to(at::kFloat);
    auto model = prepare_model(*run.context, inner);
    auto x = self.share(samples(self.size * batch, 0).first);
    model.forward(x).sum().backward();
    run.report();
    {
      auto guard = model.no_sync();
      model.forward(x).sum().backward();
    }
    run.report();
    inner->first->to(at::kBFloat16);
    for (auto cleared : {false, true}) {
      if (cleared)
        model.zero_grad();
      auto message = refusal([&] { run.report(); });
      check(message.find("parameter first.weight was changed")
              != std::string::npos,
            message);
    }
  });
}

TEST_P(gradients_kept_on_a_rank, allow_weights_to_become_of_another_type) {
  for (auto after_a_window : {false, true})
    on_ranks([=](rank_of_test& self) {
      subject<mlp> it{self};
      it.backward();
      if (after_a_window) {
        it.backward_alone();
        it.model.zero_grad();
      }
      it.backward_alone();
      it.model->to(at::kDouble);
      auto message = refusal([&] { it.run.report(); });
      check(message.find("parameter first.weight was changed")
              != std::string::npos,
            message);
      it.model.zero_grad();
      refusal([&] { it.run.report(); });
      it.model.check_replicas();
      it.run.report();
      it.backward();
      check_equal_on_ranks(self, gradients(it.model.module()));
    });
}

INSTANTIATE_TEST_SUITE_P(over, gradients_kept_on_a_rank, small_groups(),
                         name_of);

} // namespace

} // namespace troupe::internal::test
