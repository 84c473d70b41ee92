#include <csignal>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"

#include "tests/integration/torch/ddp_models.hpp"
#include "tests/integration/torch/ddp_support.hpp"

// Data-parallel training against one process that sees the data of all ranks.
// T1-T9 are the cases that every change of group, reducer or LibTorch has to
// pass.

namespace troupe::internal::test {

namespace {

class data_parallel : public test_on_ranks {};

using torch::nn::functional::cross_entropy;

TEST_P(data_parallel, T1_momentum_steps_equal_those_on_the_large_batch) {
  for (auto views : {false, true})
    on_ranks([views](rank_of_test& self) {
      data_parallel_options options;
      options.gradient_as_bucket_view = views;
      options.bucket_bytes = 1024;
      auto model = make_ddp(seeded<mlp>(self.rank), self.group(), options);
      auto alone = seeded<mlp>(0);
      torch::optim::SGD ours{model.parameters(), sgd()};
      torch::optim::SGD theirs{alone->parameters(), sgd()};
      for (int step = 0; step < 6; ++step) {
        auto [x, y] = samples(self.size * batch, step);
        model.zero_grad();
        cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
        ours.step();
        alone->zero_grad();
        cross_entropy(alone->forward(x), y).backward();
        theirs.step();
      }
      check_close(model.parameters(), alone->parameters(), 1e-6);
      check_equal_on_ranks(self, model.parameters());
    });
}

TEST_P(data_parallel, gradients_travel_in_buckets_of_the_given_size) {
  on_ranks([](rank_of_test& self) {
    reducer_counts counts;
    data_parallel_options options;
    options.bucket_bytes = 1024;
    auto model =
      make_ddp(seeded<mlp>(self.rank), self.group(), counted(counts, options));
    for (int step = 0; step < 2; ++step) { // The first step finds the order.
      counts.buckets = 0;
      model.forward(torch::ones({4, 20})).sum().backward();
    }
    if (self.size > 1)
      check(counts.buckets == 3, "buckets: " + std::to_string(counts.buckets));
  });
}

TEST_P(data_parallel, T2_small_batches_add_up_without_synchronization) {
  on_ranks([](rank_of_test& self) {
    auto model = make_ddp(seeded<mlp>(self.rank), self.group());
    auto alone = seeded<mlp>(0);
    torch::optim::SGD ours{model.parameters(), sgd()};
    torch::optim::SGD theirs{alone->parameters(), sgd()};
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      alone->zero_grad();
      for (int part = 0; part < 2; ++part) {
        auto [x, y] = samples(self.size * batch, 2 * step + part);
        auto backward = [&, x = x, y = y] {
          cross_entropy(model(self.share(x)), self.share(y)).backward();
        };
        if (part == 0) {
          auto guard = model.no_sync();
          backward();
        } else {
          backward();
        }
        cross_entropy(alone->forward(x), y).backward();
      }
      check_close(gradients(model.module()), gradients(*alone), 1e-6);
      ours.step();
      theirs.step();
    }
    check_close(model.parameters(), alone->parameters(), 1e-6);
    check_equal_on_ranks(self, model.parameters());
  });
}

TEST_P(data_parallel, T3_buffers_agree_after_the_next_forward) {
  on_ranks([](rank_of_test& self) {
    auto model = make_ddp(seeded<convnet>(self.rank), self.group());
    auto [x, y] = samples(self.size * batch, 0, 36);
    auto expected = mean_of_ranks<convnet>(self, x, y);
    cross_entropy(model(self.share(x)), self.share(y)).backward();
    check_close(gradients(model.module()), expected, 1e-6);
    check(self.size == 1 || !equal_on_ranks(self, model->buffers()),
          "buffers agree although ranks saw different data");
    model.eval();
    {
      torch::NoGradGuard no_grad;
      model(self.share(x));
    }
    check_equal_on_ranks(self, model->buffers());
  });
}

TEST_P(data_parallel, T4_a_branch_may_be_taken_by_one_rank_only) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.find_unused_parameters = true;
    auto model = make_ddp(seeded<branches>(self.rank), self.group(), options);
    for (int step = 0; step < 3; ++step) {
      auto [x, y] = samples(self.size * batch, step);
      auto expected = mean_of_ranks<branches>(
        self, x, y, [](int rank) { return std::tuple{rank == 0}; });
      model.zero_grad();
      cross_entropy(model(self.share(x), self.rank == 0), self.share(y))
        .backward();
      check_close(gradients(model.module()), expected, 1e-6);
    }
  });
}

TEST_P(data_parallel, T5_a_static_graph_may_use_layers_twice_or_never) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.static_graph = true;
    auto model = make_ddp(seeded<reuse>(self.rank), self.group(), options);
    for (int step = 0; step < 4; ++step) {
      auto [x, y] = samples(self.size * batch, step);
      auto expected = mean_of_ranks<reuse>(self, x, y);
      model.zero_grad();
      cross_entropy(model(self.share(x)), self.share(y)).backward();
      check_close(gradients(model.module()), expected, 1e-6);
    }
  });
}

TEST_P(data_parallel, T6_sparse_gradients_of_embeddings_are_averaged) {
  for (auto views : {false, true})
    on_ranks([views](rank_of_test& self) {
      data_parallel_options options;
      options.gradient_as_bucket_view = views;
      auto model = make_ddp(seeded<words>(self.rank), self.group(), options);
      for (int step = 0; step < 3; ++step) {
        auto [ignored, y] = samples(self.size * batch, step);
        auto x = indices(self.size * batch, step);
        auto expected = mean_of_ranks<words>(self, x, y);
        model.zero_grad();
        cross_entropy(model(self.share(x)), self.share(y)).backward();
        check(model->table->weight.grad().is_sparse(), "gradient is dense");
        check_close(gradients(model.module()), expected, 1e-6);
      }
    });
}

TEST_P(data_parallel, T7_gradients_travel_in_half_precision) {
  struct format {
    gradient_compression compression;
    double bound; // of the largest gradient: half a unit in the last place,
                  // once for the share and once for each sum
  };
  for (auto format : {format{gradient_compression::fp16, 2e-3},
                      format{gradient_compression::bf16, 1.6e-2}})
    on_ranks([format](rank_of_test& self) {
      if (self.size == 1)
        return;
      data_parallel_options options;
      options.compression = format.compression;
      auto model = make_ddp(seeded<mlp>(self.rank), self.group(), options);
      for (int step = 0; step < 3; ++step) {
        auto [x, y] = samples(self.size * batch, step);
        auto expected = mean_of_ranks<mlp>(self, x, y);
        model.zero_grad();
        cross_entropy(model(self.share(x)), self.share(y)).backward();
        auto ours = gradients(model.module());
        auto largest = largest_of(expected);
        check_close(ours, expected, format.bound * largest);
        check(largest_difference(ours, expected) > 0, "nothing was rounded");
        check_equal_on_ranks(self, ours);
      }
    });
}

// Rank r has 3 + r batches.
TEST_P(data_parallel, T8_ranks_may_have_different_numbers_of_batches) {
  struct variant {
    bool divide_by_initial;
    bool find_unused;
    bool views;
    bool static_graph = false;
  };
  for (auto variant :
       {variant{true, false, true}, variant{false, false, true},
        variant{true, true, false}, variant{true, false, true, true},
        variant{false, true, false, true}})
    on_ranks([variant](rank_of_test& self) {
      data_parallel_options options;
      options.static_graph = variant.static_graph;
      options.find_unused_parameters = variant.find_unused;
      options.gradient_as_bucket_view = variant.views;
      auto model = make_ddp(seeded<convnet>(self.rank), self.group(), options);
      // Without statistics of its own the norm is the same in every world.
      auto alone = seeded<convnet>(0);
      torch::optim::SGD ours{model.parameters(), {0.1}};
      torch::optim::SGD theirs{alone->parameters(), {0.1}};
      model.join(
        [&] {
          for (int step = 0; step < 3 + self.rank; ++step) {
            auto [x, y] = samples(self.size * batch, step, 36);
            model.zero_grad();
            cross_entropy(model(self.share(x)), self.share(y)).backward();
            ours.step();
            at::NoGradGuard no_grad;
            model(self.share(x)); // a look at the outcome, on this rank alone
          }
        },
        {.divide_by_initial_world_size = variant.divide_by_initial});
      for (int step = 0; step < 2 + self.size; ++step) {
        auto [x, y] = samples(self.size * batch, step, 36);
        alone->zero_grad();
        int with_data = 0;
        for (int rank = 0; rank < self.size; ++rank)
          if (step < 3 + rank) {
            ++with_data;
            cross_entropy(alone->forward(self.share(x, rank)),
                          self.share(y, rank))
              .backward();
          }
        auto divisor = variant.divide_by_initial ? self.size : with_data;
        for (auto& parameter : alone->parameters())
          parameter.mutable_grad().div_(divisor);
        theirs.step();
      }
      check_close(model.parameters(), alone->parameters(), 1e-5);
      check_equal_on_ranks(self, model.parameters());
      check_equal_on_ranks(self, model->buffers());
      // And on: the ranks still agree about the collectives.
      auto [x, y] = samples(self.size * batch, 9, 36);
      model.zero_grad();
      cross_entropy(model(self.share(x)), self.share(y)).backward();
      check_equal_on_ranks(self, gradients(model.module()));
    });
}

TEST_P(data_parallel, T9_different_shapes_are_reported_on_every_rank) {
  on_ranks([](rank_of_test& self) {
    if (self.size == 1)
      return;
    auto last = self.rank == self.size - 1;
    torch::nn::Linear layer{20, last ? 81 : 80};
    auto message = refusal([&] { make_ddp(layer, self.group()); });
    auto culprit = "rank " + std::to_string(self.size - 1);
    check(message.find(culprit) != std::string::npos, message);
    check(!last || message.find("[81, 20]") != std::string::npos, message);
  });
}

TEST_P(data_parallel, weights_are_bit_equal_on_all_ranks_after_30_steps) {
  on_ranks([](rank_of_test& self) {
    auto model = make_ddp(seeded<convnet>(self.rank), self.group());
    torch::optim::Adam optimizer{model.parameters(), {1e-2}};
    double first = 0;
    double last = 0;
    for (int step = 0; step < 30; ++step) {
      auto [x, y] = samples(self.size * batch, 0, 36);
      model.zero_grad();
      auto loss = cross_entropy(model(self.share(x)), self.share(y));
      loss.backward();
      optimizer.step();
      (step == 0 ? first : last) = loss.item<double>();
    }
    check(last < first / 2,
          "loss " + std::to_string(first) + " to " + std::to_string(last));
    check_equal_on_ranks(self, model.parameters());
    model.broadcast_buffers();
    check_equal_on_ranks(self, model->buffers());
  });
}

TEST_P(data_parallel, a_module_is_prepared_again_between_two_small_batches) {
  on_ranks([](rank_of_test& self) {
    auto model = make_ddp(seeded<mlp>(self.rank), self.group());
    auto alone = seeded<mlp>(0);
    auto train = [&](int number, bool sync) {
      auto [x, y] = samples(self.size * batch, number);
      {
        std::optional<no_sync_guard> guard;
        if (!sync)
          guard.emplace(model.no_sync());
        cross_entropy(model(self.share(x)), self.share(y)).backward();
      }
      cross_entropy(alone->forward(x), y).backward();
    };
    train(0, true);
    model.zero_grad();
    alone->zero_grad();
    train(1, false);
    model = make_ddp(model.ptr(), self.group(1));
    train(2, true);
    check_close(gradients(model.module()), gradients(*alone), 1e-6);
    for (int step = 3; step < 6; ++step) {
      model.zero_grad();
      alone->zero_grad();
      train(step, true);
      check_close(gradients(model.module()), gradients(*alone), 1e-6);
    }
  });
}

TEST_P(data_parallel, the_last_rank_may_leave_and_the_others_train_on) {
  on_ranks([](rank_of_test& self) {
    auto model = make_ddp(seeded<mlp>(self.rank), self.group());
    auto step = [&model](const rank_of_test& now, int number) {
      auto [x, y] = samples(now.size * batch, number);
      model.zero_grad();
      cross_entropy(model(now.share(x)), now.share(y)).backward();
    };
    step(self, 0);
    step(self, 1);
    model_access::ddp(model).drop();
    auto message = refusal([&] { model(torch::ones({1, 20})); });
    check(message.find("dropped") != std::string::npos, message);
    if (self.size == 1 || self.rank == self.size - 1)
      return;
    model = make_ddp(model.ptr(), self.group(1, self.size - 1));
    check(model_access::ddp(model).active() == (self.size > 2),
          "a world of one has a reducer");
    rank_of_test fewer{self, self.size - 1};
    auto [x, y] = samples(fewer.size * batch, 2);
    auto expected = mean_of_ranks<mlp>(fewer, x, y);
    step(fewer, 2);
    check_close(gradients(model.module()), expected, 1e-6);
  });
}

TEST_P(data_parallel, a_model_with_nothing_to_train_is_refused_on_every_rank) {
  on_ranks([](rank_of_test& self) {
    if (self.size == 1)
      return;
    torch::nn::Linear layer{20, 5};
    if (self.rank == 1)
      for (auto& x : layer->parameters())
        x.set_requires_grad(false);
    auto message = refusal([&] { make_ddp(layer, self.group()); });
    check(message.find("rank 1") != std::string::npos, message);
    check(self.rank != 1
            || message.find("nothing to train") != std::string::npos,
          message);
  });
}

TEST_P(data_parallel, a_backward_that_would_not_be_averaged_is_refused) {
  for (auto static_graph : {false, true})
    on_ranks([static_graph](rank_of_test& self) {
      if (self.size == 1)
        return;
      data_parallel_options options;
      options.static_graph = static_graph;
      auto model = make_ddp(seeded<mlp>(self.rank), self.group(), options);
      auto alone = seeded<mlp>(0);
      auto [x, y] = samples(self.size * batch, 0);
      auto mine = [&, x = x, y = y](const at::Tensor& output) {
        return cross_entropy(output, self.share(y));
      };
      for (int step = 0; step < 3; ++step) {
        auto message =
          refusal([&] { mine(model->forward(self.share(x))).backward(); });
        for (auto part : {"rank " + std::to_string(self.rank) + ": ",
                          std::string{"parameter third."},
                          std::string{"call model.forward(...)"}})
          check(message.find(part) != std::string::npos, message);
        model.zero_grad();
        alone->zero_grad();
        { // What is meant to stay on this rank is averaged with the next one.
          auto guard = model.no_sync();
          mine(model->forward(self.share(x))).backward();
        }
        auto loss = mine(model.forward(self.share(x)));
        loss.backward({}, /*retain_graph=*/true);
        for (int i = 0; i < 2; ++i)
          cross_entropy(alone->forward(x), y).backward();
        check_close(gradients(model.module()), gradients(*alone), 1e-6);
        // Another backward of the same forward is not averaged either.
        refusal([&] { loss.backward(); });
        at::NoGradGuard no_grad;
        model->forward(self.share(x));
      }
    });
}

TEST_P(data_parallel, a_hook_of_the_user_takes_the_place_of_the_mean) {
  on_ranks([](rank_of_test& self) {
    data_parallel_options options;
    options.comm_hook = [](const group_ptr& group) {
      return std::make_unique<summing_hook>(group);
    };
    auto model = make_ddp(seeded<mlp>(self.rank), self.group(), options);
    for (int step = 0; step < 2; ++step) {
      auto [x, y] = samples(self.size * batch, step);
      auto expected = mean_of_ranks<mlp>(self, x, y);
      for (auto& gradient : expected)
        gradient.mul_(self.size);
      model.zero_grad();
      cross_entropy(model(self.share(x)), self.share(y)).backward();
      check_close(gradients(model.module()), expected, 1e-6);
    }
  });
}

TEST_P(data_parallel, a_train_loop_prepares_its_model_in_one_line) {
  on_ranks([](rank_of_test& self) {
    rank_facts facts;
    facts.rank = self.rank;
    facts.world_size = self.size;
    train_context context{facts, nullptr, std::nullopt};
    auto message = refusal([&] { prepare_model(context, seeded<mlp>(0)); });
    check(message.find("torch_trainer") != std::string::npos, message);
    rank_access{context}.data_plane() = std::make_shared<torch_data_plane>(
      torch_data_plane{self.group(), at::kCPU});
    auto [x, y] = samples(self.size * batch, 0);
    auto train = [&self, x = x, y = y](auto model) {
      cross_entropy(model.forward(self.share(x)), self.share(y)).backward();
      check_equal_on_ranks(self, model.parameters());
      check_equal_on_ranks(self, gradients(model.module()));
    };
    train(prepare_model(context, seeded<mlp>(self.rank)));
    train(prepare_model(context, torch::nn::Linear{20, 5}));
    train(
      prepare_model(context, torch::nn::Sequential{torch::nn::Linear{20, 9},
                                                   torch::nn::Linear{9, 5}}));
  });
}

INSTANTIATE_TEST_SUITE_P(over, data_parallel, all_groups(), name_of);

TEST(a_world_of_one, adds_nothing_to_the_module) {
  auto inner = seeded<mlp>(0);
  auto alone = seeded<mlp>(0);
  auto model = make_ddp(inner, nullptr);
  EXPECT_FALSE(model_access::ddp(model).active());
  EXPECT_EQ(&model.module(), inner.get());
  auto [x, y] = samples(batch, 0);
  {
    auto guard = model.no_sync();
    cross_entropy(model(x), y).backward();
  }
  model.join([&, x = x, y = y] { cross_entropy(model(x), y).backward(); });
  model.broadcast_buffers();
  for (int i = 0; i < 2; ++i)
    cross_entropy(alone->forward(x), y).backward();
  check_close(gradients(*inner), gradients(*alone), 0);
}

TEST(forked_ranks, tell_where_a_signal_ended_them) {
  auto failures = run_processes(2, [](int rank) {
    if (rank == 1)
      std::raise(SIGSEGV);
  });
  EXPECT_EQ(failures[0], "");
  EXPECT_EQ(failures[1].find("ended by signal 11 at\n"), 0U) << failures[1];
  EXPECT_NE(failures[1].find("tell_where_a_signal_ended_them"),
            std::string::npos)
    << failures[1];
}

} // namespace

} // namespace troupe::internal::test
