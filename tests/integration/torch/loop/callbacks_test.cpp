// Early stopping, stops that a callback asks for, and learning rates.

#include <cmath>
#include <limits>

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

namespace {

/// Logs the next of *values* as `score` in each validation and each end of a
/// train epoch, plus this rank's number.
struct scripted_module : curve_module {
  explicit scripted_module(std::vector<double> values)
    : values(std::move(values)) {}

  void validation_step(batch&, std::int64_t) override {
    if (!loop().sanity_checking())
      log("score", next());
  }
  double next() const {
    return values.at(static_cast<std::size_t>(loop().current_epoch()))
           + loop().context().rank();
  }
  std::vector<double> values;
};

struct early_stopping_test : loop_test {
  /// Epochs that each of *workers* ranks ran.
  std::vector<int> epochs(int workers, std::vector<double> values,
                          early_stopping_options options,
                          loop_options how = {.max_epochs = 8}) {
    std::vector<int> result(static_cast<std::size_t>(workers));
    options.monitor = "score";
    auto x = run(workers, [&](train_context& context) {
      auto stopping = std::make_shared<early_stopping_callback>(options);
      epoch_loop loop{context, how, {stopping}};
      loop.fit(std::make_shared<scripted_module>(values),
               prepare_data_loader(context, curve{8}, {.batch_size = 4}),
               prepare_data_loader(context, curve{4}, {.batch_size = 4}));
      result[static_cast<std::size_t>(context.rank())] = loop.current_epoch();
      if (context.rank() == 0)
        reason = to_string(stopping->state_dict()["reason"]);
    });
    EXPECT_FALSE(x.error) << x.error->message;
    return result;
  }

  std::string reason;
};

struct recorded_rates : loop_callback {
  explicit recorded_rates(std::vector<metrics>& out) : out(out) {}
  void on_train_batch_end(epoch_loop& loop, const at::Tensor&,
                          std::int64_t) override {
    out.push_back(loop.callback_metrics());
  }
  std::vector<metrics>& out;
};

/// Two parameter groups, of which the schedule halves the rates.
struct two_groups : curve_module {
  explicit two_groups(schedule_interval interval) : interval(interval) {}
  loop_optimizer configure_optimizers() override {
    std::vector<parameter_group<adam_options>> groups{
      {net->first->parameters(), {.lr = 0.8}},
      {net->second->parameters(), {.lr = 0.4}}};
    return {std::make_shared<fused_adam>(std::move(groups)),
            {.factor = [](std::int64_t n) { return std::pow(0.5, n); },
             .interval = interval}};
  }
  schedule_interval interval;
};

} // namespace

TEST_F(early_stopping_test, all_ranks_stop_after_the_same_epoch) {
  // Each rank logs another number; the mean over both decides.
  testing::internal::CaptureStdout();
  EXPECT_EQ(epochs(2, {5, 4, 4.5, 4, 3.9, 3.9, 3.9, 3.9}, {.patience = 2}),
            (std::vector<int>{4, 4}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "early_stopping: epoch 3: " + reason + '\n');
  EXPECT_EQ(reason, "'score' is 4.5, and was not better than 4.5 for 2 checks "
                    "in a row");
}

TEST_F(early_stopping_test, small_changes_are_not_an_improvement) {
  EXPECT_EQ(epochs(1, {5, 4.95, 4.9, 4.89, 4, 4, 4, 4},
                   {.patience = 3, .min_delta = 0.2}),
            std::vector<int>{4});
}

TEST_F(early_stopping_test, an_accuracy_is_to_grow) {
  EXPECT_EQ(epochs(1, {1, 2, 3, 4, 5, 5, 5, 5},
                   {.mode = score_order::max, .patience = 2}),
            std::vector<int>{7});
}

TEST_F(early_stopping_test, what_is_not_finite_stops_at_once) {
  auto nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(epochs(2, {5, 4, nan, 3, 2, 1, 1, 1}, {}), (std::vector{3, 3}));
  EXPECT_EQ(reason, "'score' is nan");
}

TEST_F(early_stopping_test, rare_validations_are_what_counts) {
  // Validated after epochs 1, 3, 5, 7.
  EXPECT_EQ(epochs(1, {0, 4, 0, 4, 0, 4, 0, 4}, {.patience = 2},
                   {.max_epochs = 8, .check_val_every_n_epoch = 2}),
            std::vector<int>{6});
}

TEST_F(loop_test, the_best_checkpoint_was_validated_itself) {
  auto x = options(0);
  x.scaling.where = placement::in_process;
  x.run.checkpoint.num_to_keep = 1;
  x.run.checkpoint.checkpoint_score_attribute = "score";
  body_type train = [](train_context& context) {
    epoch_loop loop{context,
                    {.max_epochs = 5, .check_val_every_n_epoch = 2},
                    {std::make_shared<train_report_callback>()}};
    loop.fit(
      std::make_shared<scripted_module>(std::vector<double>{9, 4, 9, 3, 2}),
      prepare_data_loader(context, curve{8}, {.batch_size = 4}),
      prepare_data_loader(context, curve{4}, {.batch_size = 4}));
  };
  auto outcome = torch_trainer{in_process_loop{train}, x}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  auto rows = outcome.metrics_history();
  ASSERT_TRUE(rows);
  std::vector<std::optional<double>> scores;
  for (auto& row : *rows)
    scores.push_back(row.values.at(0).find_number("score"));
  EXPECT_EQ(scores, (std::vector<std::optional<double>>{
                      std::nullopt, 4.0, std::nullopt, 3.0, 2.0}));
  auto best = outcome.best_checkpoint();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->index, 1u);
}

struct plateau_config {
  int failing_epoch = -1;

  TROUPE_FIELDS(failing_epoch)
};

/// Six epochs with a score that never improves after the second.
void loop_with_plateau(train_context& context, const plateau_config& cfg) {
  struct module_on_plateau : scripted_module {
    explicit module_on_plateau(int failing_epoch)
      : scripted_module({5, 4, 4, 4, 4, 4}), failing_epoch(failing_epoch) {}
    loop_optimizer configure_optimizers() override {
      return std::make_shared<fused_sgd>(parameters(), sgd_options{.lr = 1});
    }
    void on_train_epoch_start() override {
      if (loop().current_epoch() == failing_epoch)
        throw std::runtime_error{"as planned"};
    }
    int failing_epoch;
  };
  epoch_loop loop{context,
                  {.max_epochs = 6},
                  {std::make_shared<plateau_callback>(
                     "score", plateau_options{.factor = 0.5, .patience = 1}),
                   std::make_shared<learning_rate_monitor>(),
                   std::make_shared<train_report_callback>()}};
  loop.fit(std::make_shared<module_on_plateau>(cfg.failing_epoch),
           prepare_data_loader(context, curve{8}, {.batch_size = 4}),
           prepare_data_loader(context, curve{4}, {.batch_size = 4}));
}

TEST_F(loop_test, a_plateau_reduces_the_rate_with_and_without_a_break) {
  for (auto failing_epoch : {-1, 3}) {
    auto name = failing_epoch < 0 ? "whole" : "broken";
    auto fit = [&](int epoch) {
      return torch_trainer{loop_with_plateau, plateau_config{epoch},
                           options(2, name)}
        .fit();
    };
    auto x = fit(failing_epoch);
    if (failing_epoch >= 0) {
      ASSERT_TRUE(x.error);
      x = fit(-1);
    }
    ASSERT_FALSE(x.error) << x.error->message;
    std::vector<double> rates;
    auto rows = x.metrics_history();
    for (auto& row : rows.value())
      rates.push_back(row.values.at(0).number("lr-fused_sgd"));
    EXPECT_EQ(rates, (std::vector{1.0, 1.0, 1.0, 1.0, 0.5, 0.5})) << name;
  }
}

TEST_F(loop_test, a_stop_that_one_rank_asks_for_ends_all) {
  auto x = run(2, [](train_context& context) {
    struct stopper : loop_callback {
      void on_train_epoch_end(epoch_loop& loop) override {
        if (loop.context().rank() == 1 && loop.current_epoch() == 1)
          loop.stop();
      }
    };
    epoch_loop loop{context, {.max_epochs = 5}, {std::make_shared<stopper>()}};
    loop.fit(std::make_shared<curve_module>(),
             prepare_data_loader(context, curve{8}, {.batch_size = 4}));
    EXPECT_EQ(loop.current_epoch(), 2);
  });
  EXPECT_FALSE(x.error) << x.error->message;
}

TEST_F(loop_test, learning_rates_are_logged_as_the_schedule_sets_them) {
  for (auto interval : {schedule_interval::epoch, schedule_interval::step}) {
    std::vector<metrics> seen;
    auto name = interval == schedule_interval::epoch ? "epochs" : "steps";
    auto x = run(
      0,
      [&](train_context& context) {
        epoch_loop loop{context,
                        {.max_epochs = 2},
                        {std::make_shared<learning_rate_monitor>(),
                         std::make_shared<recorded_rates>(seen)}};
        loop.fit(std::make_shared<two_groups>(interval),
                 prepare_data_loader(context, curve{8}, {.batch_size = 4}));
      },
      name);
    ASSERT_FALSE(x.error) << x.error->message;
    ASSERT_EQ(seen.size(), 4u);
    for (int i = 0; i < 4; ++i) {
      auto halvings = interval == schedule_interval::epoch ? i / 2 : i;
      auto& values = seen[static_cast<std::size_t>(i)];
      EXPECT_DOUBLE_EQ(values.number("lr-fused_adam/pg1"),
                       0.8 * std::pow(0.5, halvings));
      EXPECT_DOUBLE_EQ(values.number("lr-fused_adam/pg2"),
                       0.4 * std::pow(0.5, halvings));
    }
  }
}

} // namespace troupe::internal::test
