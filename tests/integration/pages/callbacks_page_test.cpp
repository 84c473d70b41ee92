// The code of docs/callbacks.md, compiled and run. The page's blocks are pieces
// of this file.

#include <cmath>
#include <fstream>
#include <iostream>

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <gtest/gtest.h>

#include <troupe/actors.hpp>
#include <troupe/runtime/metrics/metrics.hpp>

#include "tests/integration/run/run_test.hpp"
#include "tests/support/page_code.hpp"

namespace troupe::internal::test {

namespace page {

class spread_printer : public troupe::user_callback {
public:
  std::string name() const override { return "spread"; }

  void after_report(const troupe::run_context& run,
                    const std::vector<troupe::metrics>& values,
                    const std::optional<troupe::checkpoint>&) override {
    for (auto& [key, x] : troupe::aggregate(values))
      std::cout << run.name << ' ' << key << ": " << x.mean << " (" << x.min
                << " to " << x.max << ", std " << x.std << ")\n";
  }
};

class loss_watch : public troupe::user_callback {
public:
  std::string name() const override { return "loss_watch"; }

  void after_report(const troupe::run_context& run,
                    const std::vector<troupe::metrics>& values,
                    const std::optional<troupe::checkpoint>&) override {
    auto loss = values[0].number("loss");
    troupe::fs::ofstream{run.folder(name()) / "losses.txt", std::ios::app}
      << run.report_index << ' ' << loss << '\n';
    if (std::isnan(loss))
      run.control.abort("the loss is NaN");
    else if (loss < 0.1)
      run.control.finish("the loss is below 0.1");
  }
};

troupe::user_callback_actor::behavior_type
dashboard(troupe::user_callback_actor::pointer) {
  return {
    [](const troupe::before_run& x) {
      std::cout << x.run.name << " begins in " << x.run.path << '\n';
      return troupe::callback_done{};
    },
    [](const troupe::after_report& x) {
      std::cout << "report " << x.index << ": " << to_string(x.values[0])
                << '\n';
      return troupe::callback_done{};
    },
    [](const troupe::after_exception& x) {
      std::cout << x.ranks.size() << " ranks failed\n";
      return troupe::callback_done{};
    },
    [](const troupe::after_run& x) {
      std::cout << "it has " << to_string(x.outcome.status) << '\n';
      return troupe::callback_done{};
    },
  };
}

void start_clock(troupe::train_context& context) {
  std::ofstream{(context.run_path() / "begun").string()} << context.rank();
}

} // namespace page

class callbacks_page_test : public run_test {
protected:
  using output = std::string;

  output run_with(run_config run) {
    testing::internal::CaptureStdout();
    auto outcome = test::run_test::run(
      {.steps = 1}, {.scaling = {.num_workers = 2}, .run = std::move(run)});
    auto text = testing::internal::GetCapturedStdout();
    EXPECT_FALSE(outcome.error) << outcome.error->message;
    return text;
  }
};

TEST_F(callbacks_page_test, the_class_prints_the_spread_over_the_ranks) {
  using namespace page;
  auto run = config();
  run.callbacks = {std::make_shared<spread_printer>()};
  run.rank_hooks = {.before_loop = start_clock,
                    .after_loop = [](auto& context, auto& error) {
                      std::cerr << "rank " << context.rank() << ": "
                                << (error ? error.message : "done") << '\n';
                    }};
  auto text = run_with(run);
  EXPECT_NE(text.find("run rank: 0.5 (0 to 1, std 0.5)\n"), std::string::npos)
    << text;
  EXPECT_TRUE(fs::exists(run_path() / "begun"));
}

void halving_loop(troupe::train_context& context) {
  for (double loss = 1;; loss /= 2)
    context.report({{"loss", loss}});
}

TEST_F(callbacks_page_test, the_class_that_acts_ends_the_run) {
  auto run = config();
  run.callbacks = {std::make_shared<page::loss_watch>()};
  auto outcome = troupe::data_parallel_trainer{
    halving_loop,
    {.scaling = {.num_workers = 2},
     .run = run}}.fit();
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_EQ(outcome.stop_reason, "the loss is below 0.1");
  auto losses = bytes_of(run_path() / "callbacks/loss_watch/losses.txt");
  EXPECT_TRUE(losses.starts_with("0 1\n1 0.5\n")) << losses;
}

TEST_F(callbacks_page_test, the_actor_prints_the_reports) {
  using namespace page;
  auto run = config();
  std::string text;
  {
    troupe::register_messages();
    troupe::system_config settings;
    caf::actor_system system{settings};
    auto actor = system.spawn<caf::detached>(dashboard);
    run.callback_actors = {troupe::as_callback(actor, "dashboard")};
    text = run_with(run);
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  EXPECT_NE(text.find("report 0: rank=0 step=0\nit has finished\n"),
            std::string::npos)
    << text;
}

TEST_F(callbacks_page_test, the_page_shows_this_code) {
  EXPECT_EQ(
    compare_page_code("docs/callbacks.md",
                      {"tests/integration/pages/callbacks_page_test.cpp"}),
    7u);
}

} // namespace troupe::internal::test
