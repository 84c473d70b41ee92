// What comes out of a fit: weights as of a loop written by hand, and logged
// values.

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

namespace {

constexpr int epochs = 2;
constexpr double clip = 0.2;
constexpr int window = 2;

/// 20 samples in batches of 4 per epoch: with one rank 5 batches, so that the
/// last step of an epoch has one batch only; with two 3 (padded), and the same.
auto train_loader(train_context& context) {
  return prepare_data_loader(context, curve{20},
                             {.batch_size = 4, .shuffle = true});
}

tensor_map copies(const tensor_map& tensors) {
  tensor_map result;
  for (auto& [name, value] : tensors)
    result[name] = value.detach().clone();
  return result;
}

/// Parameters and buffers after a loop written by hand.
tensor_map by_hand(train_context& context) {
  auto model = prepare_model(context, std::make_shared<small_net>());
  fused_sgd optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  auto loader = train_loader(context);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    optimizer.set_lr(0.05 * warm_up(epoch));
    loader.set_epoch(epoch);
    std::int64_t i = 0;
    for (auto& [x, y] : loader) {
      auto steps = (i + 1) % window == 0 || i + 1 == loader.size();
      auto backward = [&] {
        (torch::mse_loss(model.forward(x), y) / window).backward();
      };
      if (i % window == 0)
        optimizer.zero_grad();
      if (steps) {
        backward();
        clip_grad_norm(model.parameters(), clip);
        optimizer.step();
      } else {
        auto alone = model.no_sync();
        backward();
      }
      ++i;
    }
  }
  return copies(named_tensors(model));
}

tensor_map by_loop(train_context& context, bool static_graph,
                   std::int64_t& steps) {
  auto module = std::make_shared<curve_module>();
  epoch_loop loop{context,
                  {.max_epochs = epochs,
                   .gradient_clip_val = clip,
                   .accumulate_grad_batches = window,
                   .data_parallel = {.static_graph = static_graph}}};
  loop.fit(module, train_loader(context));
  steps = loop.global_step();
  return copies(named_tensors(module->net));
}

/// Logs what the test can foretell.
struct telling_module : training_module<batch> {
  at::Tensor training_step(batch& x, std::int64_t index) override {
    log("index", static_cast<double>(index), {.on_epoch = true});
    log("rank", loop().context().rank(), {.sync_dist = true});
    log("weighted", static_cast<double>(index),
        {.on_step = false, .on_epoch = true, .batch_size = index});
    return torch::mse_loss(layer(x.first), x.second);
  }
  void on_train_epoch_end() override {
    EXPECT_EQ(loop().callback_metrics().at("index"), metric_value{1.0});
    log("late", 1 + loop().context().rank(), {.sync_dist = true});
  }
  void validation_step(batch& x, std::int64_t) override {
    log("y", x.second.mean(), {.sync_dist = true});
    log("own_y", x.second.mean());
  }
  void on_validation_epoch_end() override {
    if (!loop().sanity_checking())
      seen_at_end = loop().callback_metrics().number("y");
  }
  loop_optimizer configure_optimizers() override {
    return std::make_shared<fused_sgd>(parameters());
  }

  std::optional<double> seen_at_end;
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 1));
};

/// The mean target of the samples *indices* of a `curve`.
double mean_y(const std::vector<std::size_t>& indices) {
  double sum = 0;
  for (auto i : indices)
    sum += curve{}.get(i).second.item<double>();
  return sum / static_cast<double>(indices.size());
}

struct values_test : loop_test {
  /// What each rank has logged in one epoch of three batches, with *samples* of
  /// validation in batches of two.
  std::vector<metrics> logged(int workers, std::int64_t samples) {
    std::vector<metrics> result(static_cast<std::size_t>(workers));
    auto x = run(workers, [&](train_context& context) {
      epoch_loop loop{context, {.limit_train_batches = 3}};
      auto module = std::make_shared<telling_module>();
      loop.fit(
        module,
        prepare_data_loader(context, curve{24},
                            {.batch_size = 4, .shuffle = true}),
        prepare_data_loader(context, curve{samples},
                            {.batch_size = 2, .tail = tail::no_padding}));
      auto values = loop.callback_metrics();
      EXPECT_EQ(module->seen_at_end, values.number("y"));
      result[static_cast<std::size_t>(context.rank())] = values;
    });
    EXPECT_FALSE(x.error) << x.error->message;
    return result;
  }
};

} // namespace

class weights_test : public loop_test,
                     public ::testing::WithParamInterface<int> {};

TEST_P(weights_test, weights_are_those_of_a_loop_written_by_hand) {
  auto x = run(GetParam(), [](train_context& context) {
    auto expected = by_hand(context);
    for (auto static_graph : {false, true}) {
      std::int64_t steps = 0;
      auto found = by_loop(context, static_graph, steps);
      EXPECT_EQ(steps, epochs * (context.world_size() == 1 ? 3 : 2));
      ASSERT_EQ(found.size(), expected.size());
      auto first = small_net{}.named_parameters()["first.weight"];
      EXPECT_FALSE(torch::equal(found.at("first.weight"), first));
      for (auto& [name, value] : expected)
        EXPECT_TRUE(torch::equal(found.at(name), value)) << name;
    }
  });
  EXPECT_FALSE(x.error) << x.error->message;
}

TEST_F(loop_test, ranks_that_drift_apart_are_reported_before_a_checkpoint) {
  // As with a learning rate that follows a rank's own loss.
  struct own_rate : loop_callback {
    void on_validation_end(epoch_loop& loop) override {
      if (!loop.sanity_checking() && loop.current_epoch() == 0)
        loop.optimizer().as<fused_sgd>()->set_lr(0.1
                                                 / (1 + loop.context().rank()));
    }
  };
  struct constant_rate : curve_module {
    loop_optimizer configure_optimizers() override {
      return std::make_shared<fused_sgd>(parameters());
    }
  };
  auto train = [this](bool check) {
    auto body = [check](train_context& context) {
      epoch_loop loop{context,
                      {.max_epochs = 5, .check_replicas = check},
                      {std::make_shared<own_rate>(),
                       std::make_shared<train_report_callback>()}};
      loop.fit(std::make_shared<constant_rate>(), train_loader(context),
               train_loader(context));
    };
    return run(2, body, check ? "checked" : "unchecked");
  };
  auto x = train(true);
  ASSERT_TRUE(x.error);
  EXPECT_NE(x.error->message.find("of rank 1 differs from that of rank 0"),
            std::string::npos)
    << x.error->message;
  EXPECT_EQ(x.metrics_history()->size(), 1u);
  // As ranks on different processors may.
  x = train(false);
  EXPECT_FALSE(x.error) << x.error->message;
}

INSTANTIATE_TEST_SUITE_P(ranks, weights_test, ::testing::Values(1, 2));

TEST_F(values_test, means_and_latest_values_go_by_their_names) {
  auto values = logged(1, 3).front();
  EXPECT_EQ(values.at("index_step"), metric_value{2.0});
  EXPECT_EQ(values.at("index_epoch"), metric_value{1.0});
  EXPECT_EQ(values.at("index"), metric_value{1.0});
  EXPECT_EQ(values.at("rank"), metric_value{0.0});
  EXPECT_FALSE(values.contains("rank_step"));
  EXPECT_DOUBLE_EQ(values.number("weighted"), (1 * 1 + 2 * 2) / 3.0);
  EXPECT_EQ(values.at("late"), metric_value{1.0});
}

TEST_F(values_test, a_mean_over_an_epoch_counts_each_sample_of_each_rank_once) {
  auto ranks = logged(2, 5);
  // Rank 0 has three samples of five, in batches of two and one.
  auto all = mean_y({0, 1, 2, 3, 4});
  for (auto& x : ranks) {
    EXPECT_NEAR(x.number("y"), all, 1e-6);
    EXPECT_EQ(x.at("rank"), metric_value{0.5});
    EXPECT_EQ(x.at("late"), metric_value{1.5});
  }
  EXPECT_EQ(ranks[0].at("y"), ranks[1].at("y")); // the same bits
  // Without sync_dist each has its own.
  EXPECT_NEAR((3 * ranks[0].number("own_y") + 2 * ranks[1].number("own_y")) / 5,
              all, 1e-6);
  EXPECT_NE(ranks[0].at("own_y"), ranks[1].at("own_y"));
}

TEST_F(values_test, a_rank_without_samples_adds_nothing_to_a_mean) {
  auto ranks = logged(2, 1);
  EXPECT_NEAR(ranks[0].number("y"), mean_y({0}), 1e-6);
  EXPECT_EQ(ranks[0].at("y"), ranks[1].at("y"));
  EXPECT_FALSE(ranks[1].contains("own_y"));
}

TEST_F(values_test, a_mean_is_over_the_ranks_that_logged_the_value) {
  struct one_sided : curve_module {
    void validation_step(batch&, std::int64_t) override {
      auto rank = loop().context().rank();
      log(rank == 0 ? "first" : "second", 1 + rank, {.sync_dist = true});
      if (rank == 1)
        log("own", 3);
    }
  };
  std::vector<metrics> values(2);
  std::vector<double> judged(2);
  auto x = run(2, [&](train_context& context) {
    auto monitor = std::make_shared<early_stopping_callback>(
      early_stopping_options{.monitor = "own"});
    epoch_loop loop{context, {}, {monitor}};
    auto train = prepare_data_loader(context, curve{8}, {.batch_size = 4});
    auto validation = prepare_data_loader(context, curve{8}, {.batch_size = 4});
    loop.fit(std::make_shared<one_sided>(), train, validation);
    auto rank = static_cast<std::size_t>(context.rank());
    values[rank] = loop.callback_metrics();
    judged[rank] = monitor->state_dict().number("best");
  });
  ASSERT_FALSE(x.error) << x.error->message;
  for (auto& one : values) {
    EXPECT_EQ(one.at("first"), metric_value{1.0});
    EXPECT_EQ(one.at("second"), metric_value{2.0});
  }
  EXPECT_FALSE(values[0].contains("own"));
  EXPECT_EQ(judged, (std::vector<double>{3, 3}));
}

TEST_F(values_test, validation_leaves_parts_in_the_mode_they_were_in) {
  struct frozen : curve_module {
    void on_train_epoch_start() override { net->norm->eval(); }
    void on_train_epoch_end() override {
      EXPECT_FALSE(net->norm->is_training());
      EXPECT_TRUE(net->first->is_training());
      EXPECT_TRUE(is_training());
      EXPECT_TRUE(at::GradMode::is_enabled());
    }
  };
  auto x = run(0, [](train_context& context) {
    std::vector<batch> batches{curve{}.get(0)};
    batches[0].first = batches[0].first.unsqueeze(0);
    batches[0].second = batches[0].second.unsqueeze(0);
    epoch_loop loop{context};
    // A loader is any range, or a function that makes one.
    loop.fit(std::make_shared<frozen>(), batches, [&] { return batches; });
    EXPECT_TRUE(loop.callback_metrics().contains("val_loss"));
  });
  EXPECT_FALSE(x.error) << x.error->message;
}

} // namespace troupe::internal::test
