// The code of docs/sweeps.md, compiled and run.

#include <cstddef>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <caf/actor_system.hpp>
#include <gmock/gmock.h>
#include <troupe/actors.hpp>
#include <troupe/sweep.hpp>

#include "tests/support/page_code.hpp"
#include "tests/support/temporary_folder.hpp"

namespace sweeps_page {

using testing::HasSubstr;

struct config {
  double lr = 0.01;
  int batch_size = 32;
  std::string optimizer = "adam";

  TROUPE_FIELDS(lr, batch_size, optimizer)
};

void train(troupe::train_context& context, const config& cfg) {
  context.report({{"val/loss", cfg.lr / cfg.batch_size}});
}

int points_of_model = 0;

/// A model of the searcher's own.
struct my_model {
  void add(const troupe::metrics&, double) { ++points_of_model; }
};

class my_searcher : public troupe::searcher {
public:
  std::string name() const override { return "mine, version 2"; }

  std::optional<troupe::metrics> ask(const troupe::search_space& space,
                                     std::size_t index) override;

  void tell(const troupe::trial& x) override {
    if (x.score)
      model_.add(x.params, *x.score);
  }

private:
  my_model model_;
};

std::optional<troupe::metrics> my_searcher::ask(const troupe::search_space&,
                                                std::size_t index) {
  return troupe::metrics{{"lr", 1.0 / static_cast<double>(index + 1)}};
}

class my_callback : public troupe::user_callback {
public:
  explicit my_callback(std::string trial) : trial_(std::move(trial)) {}

  void after_run(const troupe::run_context& run,
                 const troupe::result&) override {
    std::cout << "callback of " << trial_ << " in " << run.name << '\n';
  }

private:
  std::string trial_;
};

troupe::sweep_observer_actor::behavior_type
watcher(troupe::sweep_observer_actor::pointer) {
  return {
    [](const troupe::trial_ended& x) {
      std::cout << x.content.name << ": " << x.content.score.value_or(0)
                << '\n';
    },
    [](const troupe::sweep_ended& x) {
      std::cout << x.outcome.trials.size() << " trials\n";
    },
  };
}

class sweeps_page_test : public testing::Test {
protected:
  troupe::train_options options() const {
    return {.scaling = {.num_workers = 1},
            .run = {.name = "lr-search",
                    .storage_path = storage_.path(),
                    .quiet = true}};
  }

  int complain(const std::string& why) {
    ADD_FAILURE() << why;
    return 1;
  }

  int serve(const troupe::data_parallel_trainer& trainer,
            const troupe::sweep_options& options) {
    troupe::register_messages();
    troupe::system_config settings;
    caf::actor_system system{settings};
    troupe::search_space space{{"lr", troupe::uniform(0, 1)}};
    auto search = troupe::sweep{trainer, space, options}.start(system);
    if (!search)
      return complain(search.error().message);
    search->follow(system.spawn(watcher));
    return search->wait().error ? 1 : 0;
  }

  troupe::internal::test::temporary_folder storage_;
};

TEST_F(sweeps_page_test, the_sweep_finds_its_best_trial) {
  config cfg;
  auto run = options();
  testing::internal::CaptureStdout();
  auto outcome = troupe::sweep{
    troupe::data_parallel_trainer{train, cfg, run},
    {{"lr", troupe::log_uniform(1e-5, 1e-1)},
     {"batch_size", troupe::choice({16, 32, 64})},
     {"optimizer", troupe::choice({"adam", "sgd"})}},
    {.metric = "val/loss",
     .trials = 40}}.fit();
  if (auto best = outcome.best())
    std::cout << best->name << ' ' << to_string(best->params) << '\n';
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("batch_size="));
}

TEST_F(sweeps_page_test, a_service_follows_a_sweep_with_a_searcher_of_its_own) {
  auto mine = std::make_shared<my_searcher>();
  troupe::sweep_options options{
    .metric = "val/loss", .trials = 2, .searcher = mine, .max_concurrent = 1};
  options.prepare = [](const troupe::trial& x, troupe::run_config& run) {
    run.callbacks = {std::make_shared<my_callback>(x.name)};
  };
  testing::internal::CaptureStdout();
  auto code = serve({train, config{.batch_size = 1}, this->options()}, options);
  auto text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  EXPECT_EQ(points_of_model, 2);
  EXPECT_THAT(text, HasSubstr("callback of trial-0001 in trial-0001\n"));
  EXPECT_THAT(text, HasSubstr("trial-0001: 0.5\n2 trials\n"));
}

TEST_F(sweeps_page_test, the_page_shows_this_code) {
  EXPECT_EQ(
    troupe::internal::test::compare_page_code(
      "docs/sweeps.md", {"tests/integration/pages/sweeps_page_test.cpp"}),
    6u);
}

} // namespace sweeps_page
