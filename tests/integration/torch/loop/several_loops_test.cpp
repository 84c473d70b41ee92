// Runs with several loops or other checkpoints: which loops count, and which
// checkpoint each one resumes from.

#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

struct two_loops_config {
  int attempt = -1; // that rank 1 is killed in, in the second loop

  TROUPE_FIELDS(attempt)
};

/// Two epochs of a module, then two of one that learns what the first one says,
/// which no checkpoint of the second loop has.
void two_loops(train_context& context, const two_loops_config& cfg) {
  struct student : curve_module {
    student(std::shared_ptr<curve_module> teacher, int attempt)
      : curve_module(0.4), teacher(std::move(teacher)), attempt(attempt) {}
    at::Tensor training_step(batch& x, std::int64_t index) override {
      {
        const torch::NoGradGuard no_grad;
        x.second = teacher->net->second(teacher->net->first(x.first));
      }
      return curve_module::training_step(x, index);
    }
    void on_train_epoch_start() override {
      auto& context = loop().context();
      if (context.rank() == 1 && static_cast<int>(context.attempt()) == attempt
          && loop().current_epoch() == 1)
        std::raise(SIGKILL);
    }
    std::shared_ptr<curve_module> teacher;
    int attempt;
  };
  torch::manual_seed(3 + context.rank());
  auto data =
    prepare_data_loader(context, curve{40}, {.batch_size = 4, .shuffle = true});
  auto fit = [&](auto module) {
    epoch_loop loop{
      context, {.max_epochs = 2}, {std::make_shared<train_report_callback>()}};
    loop.fit(module, data);
  };
  auto teacher = std::make_shared<curve_module>(0.4);
  fit(teacher);
  fit(std::make_shared<student>(teacher, cfg.attempt));
}

TEST_F(loop_test, each_of_two_loops_resumes_from_its_own_checkpoint) {
  auto whole =
    torch_trainer{two_loops, two_loops_config{}, options(2, "whole")}.fit();
  auto with_restart = options(2, "broken");
  with_restart.run.failure.max_failures = 1;
  auto broken =
    torch_trainer{two_loops, two_loops_config{0}, with_restart}.fit();
  expect_same(whole, broken);
  auto rows = whole.metrics_history();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 4u);
}

TEST_F(loop_test, a_loop_that_lost_its_checkpoints_to_a_later_one_is_over) {
  auto x = options(2);
  x.run.failure.max_failures = 1;
  x.run.checkpoint.num_to_keep = 1;
  auto broken = torch_trainer{two_loops, two_loops_config{0}, x}.fit();
  ASSERT_FALSE(broken.error) << broken.error->message;
  auto rows = broken.metrics_history();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 4u);
  EXPECT_NE(bytes_of(storage_ / "run" / "journal.jsonl")
              .find("the weights of its module are those that it begins with"),
            std::string::npos);
}

struct tested_loop_config {
  bool trains = true;
  bool fails = true;

  TROUPE_FIELDS(trains, fails)
};

/// Two epochs, and then a checkpoint of another kind.
void tested_loop(train_context& context, const tested_loop_config& cfg) {
  epoch_loop loop{
    context, {.max_epochs = 2}, {std::make_shared<train_report_callback>()}};
  if (cfg.trains)
    loop.fit(std::make_shared<curve_module>(),
             prepare_data_loader(context, curve{8}, {.batch_size = 4}));
  context.report({{"accuracy", 0.5}}, [](staged_checkpoint& files) {
    std::ofstream{(files.path() / "exported").string()} << "net";
  });
  if (cfg.fails)
    throw std::runtime_error{"as planned"};
}

TEST_F(loop_test, a_loop_finds_its_checkpoint_below_one_of_another_kind) {
  auto first =
    torch_trainer{tested_loop, tested_loop_config{}, options(2)}.fit();
  ASSERT_TRUE(first.error);
  auto x =
    torch_trainer{tested_loop, tested_loop_config{.fails = false}, options(2)}
      .fit();
  ASSERT_FALSE(x.error) << x.error->message;
  auto rows = x.metrics_history();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 4u) << "two epochs, and a test at each start";
}

TEST_F(loop_test, a_loop_without_a_checkpoint_of_its_own_says_so) {
  auto first =
    torch_trainer{tested_loop, tested_loop_config{.trains = false}, options(2)}
      .fit();
  ASSERT_TRUE(first.error);
  auto x =
    torch_trainer{tested_loop, tested_loop_config{.fails = false}, options(2)}
      .fit();
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_NE(bytes_of(storage_ / "run" / "journal.jsonl")
              .find("checkpoint_000000 was not saved by an epoch_loop"),
            std::string::npos);
}

namespace {

/// Trains a net of its own at the end of each epoch.
struct probe : loop_callback {
  void on_train_epoch_end(epoch_loop& loop) override {
    auto& context = loop.context();
    epoch_loop inner{context};
    inner.fit(std::make_shared<curve_module>(),
              prepare_data_loader(context, curve{8}, {.batch_size = 4}));
  }
};

struct fails_once : curve_module {
  void on_train_epoch_start() override {
    if (loop().context().attempt() == 0 && loop().current_epoch() == 1)
      throw std::runtime_error{"as planned"};
  }
};

/// How many rows a run of *loop* has that fails once.
std::size_t rows_with_a_failure(void (*loop)(train_context&,
                                             const two_loops_config&),
                                torch_options options) {
  options.run.failure.max_failures = 1;
  auto x = torch_trainer{loop, two_loops_config{}, std::move(options)}.fit();
  EXPECT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.attempts, 2u);
  auto rows = x.metrics_history();
  EXPECT_TRUE(rows);
  return rows ? rows->size() : 0;
}

} // namespace

/// Two loops, the first of which has others inside.
void probed_loops(train_context& context, const two_loops_config&) {
  auto data = prepare_data_loader(context, curve{8}, {.batch_size = 4});
  epoch_loop first{
    context,
    {.max_epochs = 2},
    {std::make_shared<probe>(), std::make_shared<train_report_callback>()}};
  first.fit(std::make_shared<curve_module>(), data);
  epoch_loop second{
    context, {.max_epochs = 2}, {std::make_shared<train_report_callback>()}};
  second.fit(std::make_shared<fails_once>(), data);
}

TEST_F(loop_test, loops_inside_another_do_not_count) {
  EXPECT_EQ(rows_with_a_failure(probed_loops, options(1)), 4u)
    << "two epochs of each";
}

/// Trains in another way if the first one fails.
void loop_with_a_fallback(train_context& context, const two_loops_config&) {
  struct too_large : curve_module {
    void on_train_epoch_start() override {
      throw std::runtime_error{"out of memory"};
    }
  };
  auto data = prepare_data_loader(context, curve{8}, {.batch_size = 4});
  epoch_loop loop{
    context, {.max_epochs = 2}, {std::make_shared<train_report_callback>()}};
  try {
    loop.fit(std::make_shared<too_large>(), data);
  } catch (const std::runtime_error&) {
    loop.fit(std::make_shared<fails_once>(), data);
  }
}

TEST_F(loop_test, a_loop_that_failed_before_a_checkpoint_is_tried_again) {
  EXPECT_EQ(rows_with_a_failure(loop_with_a_fallback, options(1)), 2u);
  EXPECT_EQ(bytes_of(storage_ / "run" / "journal.jsonl")
              .find("was not saved by an epoch_loop"),
            std::string::npos);
}

struct fallbacks_config {
  // What each loop does in its second epoch, a letter for each attempt: 't': it
  // throws, 'k': rank 1 is killed. Otherwise it trains.
  std::string first;
  std::string second; // if the first one throws
  std::string third;  // if the second one throws, too
  std::string last;
  bool has_last = false;

  TROUPE_FIELDS(first, second, third, last, has_last)
};

/// Two epochs of each loop, with other seeds of the order of samples.
void loops_with_fallbacks(train_context& context, const fallbacks_config& cfg) {
  struct planned : curve_module {
    planned(int number, std::string plan)
      : number(number), plan(std::move(plan)) {}
    void on_train_epoch_start() override {
      auto& context = loop().context();
      auto attempt = static_cast<std::size_t>(context.attempt());
      if (loop().current_epoch() != 1 || attempt >= plan.size())
        return;
      if (plan[attempt] == 'k' && context.rank() == 1)
        std::raise(SIGKILL);
      if (plan[attempt] == 't')
        throw std::runtime_error{"as planned"};
    }
    void on_train_epoch_end() override {
      log("number", static_cast<double>(number));
    }
    int number;
    std::string plan;
  };
  torch::manual_seed(3 + context.rank());
  auto fit = [&](int number, const std::string& plan) {
    auto data =
      prepare_data_loader(context, curve{16},
                          {.batch_size = 4,
                           .shuffle = true,
                           .seed = static_cast<std::uint64_t>(number)});
    epoch_loop loop{
      context, {.max_epochs = 2}, {std::make_shared<train_report_callback>()}};
    loop.fit(std::make_shared<planned>(number, plan), data);
  };
  auto try_second = [&] {
    try {
      fit(1, cfg.second);
    } catch (const std::runtime_error&) {
      fit(2, cfg.third);
    }
  };
  try {
    fit(0, cfg.first);
  } catch (const std::runtime_error&) {
    try_second();
  }
  if (cfg.has_last)
    fit(3, cfg.last);
}

using loop_epochs = std::vector<std::pair<int, int>>;

/// Which loop reported which of its epochs, in order.
loop_epochs epochs_of(const result& x) {
  EXPECT_FALSE(x.error) << x.error->message;
  auto rows = x.metrics_history();
  EXPECT_TRUE(rows);
  loop_epochs all;
  if (rows)
    for (auto& row : *rows)
      all.emplace_back(static_cast<int>(row.values.at(0).number("number")),
                       static_cast<int>(row.values.at(0).number("epoch")));
  return all;
}

/// Runs of loops that replace others.
class fallback_test : public loop_test {
protected:
  /// A run of *cfg* that is started again after one failure.
  result run_of(const fallbacks_config& cfg, const std::string& name = "run") {
    auto x = options(2, name);
    x.run.failure.max_failures = 1;
    return torch_trainer{loops_with_fallbacks, cfg, x}.fit();
  }
};

TEST_F(fallback_test, a_loop_that_replaced_others_resumes_after_them) {
  auto whole = run_of({.first = "t", .second = "t"}, "whole");
  auto broken = run_of({.first = "tt", .second = "tt", .third = "t"}, "broken");
  expect_same(whole, broken);
  EXPECT_EQ(epochs_of(broken), (loop_epochs{{0, 0}, {1, 0}, {2, 0}, {2, 1}}));
}

TEST_F(fallback_test, a_loop_that_replaces_a_resumed_one_is_not_resumed) {
  auto x = run_of({.first = "kt"});
  EXPECT_EQ(x.attempts, 2u);
  EXPECT_EQ(epochs_of(x), (loop_epochs{{0, 0}, {1, 0}, {1, 1}}));
}

TEST_F(fallback_test, loops_after_one_that_failed_once_begin_again) {
  auto x = run_of({.first = "t", .last = "t", .has_last = true});
  EXPECT_EQ(x.attempts, 2u);
  EXPECT_EQ(
    epochs_of(x),
    (loop_epochs{{0, 0}, {1, 0}, {1, 1}, {3, 0}, {0, 1}, {3, 0}, {3, 1}}));
}

TEST_F(fallback_test, a_loop_after_one_that_was_replaced_is_resumed) {
  auto x = run_of({.first = "tt", .last = "t", .has_last = true});
  EXPECT_EQ(x.attempts, 2u);
  EXPECT_EQ(epochs_of(x),
            (loop_epochs{{0, 0}, {1, 0}, {1, 1}, {3, 0}, {3, 1}}));
}

} // namespace troupe::internal::test
