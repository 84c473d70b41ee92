// Runs that continue after a failure, and what their checkpoints have for that.

#include <csignal>

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

namespace {

struct failing_config {
  int attempt = -1;   // that rank 1 is killed in
  int epoch = 3;      // by its second batch
  bool apart = false; // each rank has a layer and running means of its own

  TROUPE_FIELDS(attempt, epoch, apart)
};

/// Has something of all that a resumed run must find again: momentum, running
/// means, a schedule, random numbers, a callback's state, old values.
void failing_loop(train_context& context, const failing_config& cfg) {
  struct killer : loop_callback {
    explicit killer(const failing_config& cfg) : cfg(cfg) {}
    void on_train_batch_start(epoch_loop& loop, std::int64_t index) override {
      auto& context = loop.context();
      if (context.rank() == 1
          && static_cast<int>(context.attempt()) == cfg.attempt
          && loop.current_epoch() == cfg.epoch && index == 1)
        std::raise(SIGKILL);
    }
    failing_config cfg;
  };
  torch::manual_seed(3 + context.rank());
  auto train =
    prepare_data_loader(context, curve{40}, {.batch_size = 4, .shuffle = true});
  auto validation = prepare_data_loader(
    context, curve{9}, {.batch_size = 4, .tail = tail::no_padding});
  loop_options options{.max_epochs = 8, .check_val_every_n_epoch = 3};
  if (cfg.apart) {
    options.check_val_every_n_epoch = 8; // right before the last checkpoint
    options.data_parallel.sync_buffers = false;
    options.data_parallel.ignored = {"net.second.weight", "net.second.bias"};
  }
  epoch_loop loop{
    context,
    options,
    {std::make_shared<early_stopping_callback>(early_stopping_options{
       .monitor = "loss", .patience = 2, .min_delta = 1e-3}),
     std::make_shared<learning_rate_monitor>(),
     std::make_shared<train_report_callback>(), std::make_shared<killer>(cfg)}};
  loop.fit(std::make_shared<curve_module>(/*dropout=*/0.4), train, validation);
}

struct rate_config {
  double lr = 0.1;
  bool scheduled = true;
  int failing_epoch = -1;
  int own_rate_after = -1; // Epoch after which a hook sets 0.3.

  TROUPE_FIELDS(lr, scheduled, failing_epoch, own_rate_after)
};

/// Four epochs that begin with a learning rate of the configuration.
void loop_with_rate(train_context& context, const rate_config& cfg) {
  struct module_with_rate : curve_module {
    explicit module_with_rate(const rate_config& cfg) : cfg(cfg) {}
    loop_optimizer configure_optimizers() override {
      auto optimizer =
        std::make_shared<fused_sgd>(parameters(), sgd_options{.lr = cfg.lr});
      return {optimizer,
              cfg.scheduled ? lr_schedule{.factor = warm_up} : lr_schedule{}};
    }
    void on_train_epoch_start() override {
      if (loop().current_epoch() == cfg.failing_epoch)
        throw std::runtime_error{"as planned"};
    }
    void on_train_epoch_end() override {
      if (loop().current_epoch() == cfg.own_rate_after)
        loop().optimizer().as<fused_sgd>()->set_lr(0.3);
    }
    rate_config cfg;
  };
  epoch_loop loop{context,
                  {.max_epochs = 4},
                  {std::make_shared<learning_rate_monitor>(),
                   std::make_shared<train_report_callback>()}};
  loop.fit(std::make_shared<module_with_rate>(cfg),
           prepare_data_loader(context, curve{8}, {.batch_size = 4}));
}

} // namespace

TEST_F(loop_test, every_rank_reports_each_epoch_with_a_checkpoint) {
  auto x = torch_trainer{failing_loop, failing_config{}, options(2)}.fit();
  ASSERT_FALSE(x.error) << x.error->message;
  auto rows = x.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_GE(rows->size(), 3u);
  for (std::size_t epoch = 0; epoch < rows->size(); ++epoch) {
    const auto& ranks = (*rows)[epoch].values;
    ASSERT_EQ(ranks.size(), 2u);
    for (auto& values : ranks) {
      EXPECT_EQ(values.at("epoch"), metric_value{epoch});
      EXPECT_EQ(values.at("step"), metric_value{5 * (epoch + 1)});
      EXPECT_DOUBLE_EQ(values.number("lr-fused_sgd"), 0.05 * warm_up(epoch));
      EXPECT_EQ(values.contains("val_loss"), epoch % 3 == 2 || epoch == 7);
    }
    EXPECT_EQ(ranks[0].at("loss"), ranks[1].at("loss"));
  }
  ASSERT_TRUE(x.checkpoint);
  for (auto file : {"model.safetensors", "loop.safetensors", "loop.json",
                    "rank_0.safetensors", "rank_1.safetensors"})
    EXPECT_TRUE(fs::exists(x.checkpoint->path() / file)) << file;
}

TEST_F(loop_test, a_resumed_loop_keeps_the_learning_rate_it_began_with) {
  for (auto scheduled : {false, true}) {
    auto name = scheduled ? "scheduled" : "constant";
    auto first =
      torch_trainer{
        loop_with_rate,
        rate_config{.lr = 0.1, .scheduled = scheduled, .failing_epoch = 2},
        options(2, name)}
        .fit();
    ASSERT_TRUE(first.error);
    auto second = torch_trainer{loop_with_rate,
                                rate_config{.lr = 0.5, .scheduled = scheduled},
                                options(2, name)}
                    .fit();
    ASSERT_FALSE(second.error) << second.error->message;
    auto rows = second.metrics_history();
    ASSERT_TRUE(rows);
    ASSERT_EQ(rows->size(), 4u);
    for (std::size_t i = 0; i < 4; ++i)
      for (auto& values : (*rows)[i].values)
        EXPECT_DOUBLE_EQ(values.number("lr-fused_sgd"),
                         0.1 * (scheduled ? warm_up(i) : 1))
          << i;
    auto note = [&](int rank) {
      return bytes_of(storage_ / name / "logs"
                      / ("rank_" + std::to_string(rank) + ".log"));
    };
    EXPECT_NE(note(0).find("resumes with the learning rate 0.1 that its run "
                           "began with, not with 0.5"),
              std::string::npos)
      << note(0);
    EXPECT_EQ(note(1).find("learning rate"), std::string::npos) << note(1);
  }
}

TEST_F(loop_test, a_rate_that_a_hook_has_set_counts_after_a_break_too) {
  for (auto scheduled : {false, true})
    for (auto failing_epoch : {-1, 2}) {
      auto name = std::string{scheduled ? "scheduled" : "constant"}
                  + (failing_epoch < 0 ? "_whole" : "_broken");
      rate_config cfg{.scheduled = scheduled,
                      .failing_epoch = failing_epoch,
                      .own_rate_after = 1};
      auto x = torch_trainer{loop_with_rate, cfg, options(2, name)}.fit();
      if (failing_epoch >= 0) {
        ASSERT_TRUE(x.error) << name;
        cfg.failing_epoch = -1;
        x = torch_trainer{loop_with_rate, cfg, options(2, name)}.fit();
      }
      ASSERT_FALSE(x.error) << x.error->message;
      auto rows = x.metrics_history();
      ASSERT_TRUE(rows);
      std::vector<double> rates;
      for (auto& row : *rows)
        rates.push_back(row.values.at(0).number("lr-fused_sgd"));
      EXPECT_EQ(rates, (scheduled ? std::vector{0.1, 0.1 * warm_up(1), 0.3,
                                                0.1 * warm_up(3)}
                                  : std::vector{0.1, 0.1, 0.3, 0.3}))
        << name;
    }
}

struct own_optimizer_config {
  int failing_epoch = -1;

  TROUPE_FIELDS(failing_epoch)
};

/// Makes smaller steps as it counts them, in tensors with names that other
/// things in a checkpoint have, too.
struct own_optimizer {
  struct options_type {
    double lr = 0.1;
  };
  struct group {
    options_type options;
    std::vector<at::Tensor> parameters;
  };

  explicit own_optimizer(std::vector<at::Tensor> parameters) {
    all.push_back(group{{}, std::move(parameters)});
  }

  void step() {
    const torch::NoGradGuard no_grad;
    count += 1;
    for (auto& x : all[0].parameters)
      x.sub_(x.grad(), all[0].options.lr / count.item<double>());
  }
  std::vector<group>& groups() { return all; }
  tensor_map state() const {
    return {{"n", count}, {"cpu", count}, {"added.n", count}};
  }
  void load_state(const tensor_map& saved) {
    if (saved.size() != 3)
      throw std::runtime_error{"the state has other tensors"};
    for (auto name : {"n", "cpu", "added.n"})
      count = saved.at(name).clone();
  }

  std::vector<group> all;
  at::Tensor count = torch::zeros({}, torch::kDouble);
};

/// Four epochs of one step; rank 1 has its own state of the optimizer.
void loop_with_own_optimizer(train_context& context,
                             const own_optimizer_config& cfg) {
  struct module_with_own_optimizer : curve_module {
    explicit module_with_own_optimizer(int failing_epoch)
      : failing_epoch(failing_epoch) {}
    loop_optimizer configure_optimizers() override {
      return std::make_shared<own_optimizer>(parameters());
    }
    void on_train_epoch_start() override {
      if (loop().current_epoch() == failing_epoch)
        throw std::runtime_error{"as planned"};
    }
    void on_train_epoch_end() override {
      log("steps",
          loop().optimizer().as<own_optimizer>()->count.item<double>());
    }
    int failing_epoch;
  };
  loop_options how{.max_epochs = 4};
  how.data_parallel.ignored = {"net.second.bias"};
  epoch_loop loop{context, how, {std::make_shared<train_report_callback>()}};
  loop.fit(std::make_shared<module_with_own_optimizer>(cfg.failing_epoch),
           prepare_data_loader(context, curve{8}, {.batch_size = 4}));
}

TEST_F(loop_test, an_optimizer_of_ones_own_is_resumed_whatever_it_names) {
  auto fit = [&](int failing_epoch) {
    return torch_trainer{loop_with_own_optimizer,
                         own_optimizer_config{failing_epoch}, options(2)}
      .fit();
  };
  ASSERT_TRUE(fit(2).error);
  auto x = fit(-1);
  ASSERT_FALSE(x.error) << x.error->message;
  auto rows = x.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 4u);
  for (std::size_t epoch = 0; epoch < 4; ++epoch)
    for (auto& values : (*rows)[epoch].values)
      EXPECT_EQ(values.number("steps"), static_cast<double>(epoch + 1));
}

class killed_loop_test : public loop_test,
                         public testing::WithParamInterface<bool> {};

TEST_P(killed_loop_test, continues_as_if_nothing_had_happened) {
  auto apart = GetParam();
  auto whole = torch_trainer{failing_loop, failing_config{.apart = apart},
                             options(2, "whole")}
                 .fit();
  auto with_restart = options(2, "broken");
  with_restart.run.failure.max_failures = 1;
  auto broken =
    torch_trainer{failing_loop, failing_config{.attempt = 0, .apart = apart},
                  with_restart}
      .fit();
  expect_same(whole, broken);
  auto rows = whole.metrics_history();
  ASSERT_TRUE(rows);
  ASSERT_GT(rows->size(), 4u);
  if (!apart || HasFatalFailure())
    return;
  auto shared =
    load_safetensors(whole.checkpoint->path() / "model.safetensors");
  auto own = load_safetensors(whole.checkpoint->path() / "rank_1.safetensors");
  for (auto name : {"net.second.weight", "net.norm.running_mean"})
    EXPECT_FALSE(own.at(std::string{"model."} + name).equal(shared.at(name)))
      << name;
}

INSTANTIATE_TEST_SUITE_P(with_ranks, killed_loop_test, testing::Bool(),
                         [](auto& x) {
                           return x.param ? "that_differ" : "that_are_equal";
                         });

} // namespace troupe::internal::test
