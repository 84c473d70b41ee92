// Sweeps, trials and runs that are refused.

#include <functional>
#include <memory>
#include <vector>

#include <gmock/gmock.h>

#include "tests/integration/sweep/sweep_fixture.hpp"
#include "tests/support/environment_guard.hpp"
#include "troupe/trainers/launch.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

TEST_F(sweep_test, a_run_is_refused_the_name_of_a_sweep) {
  auto x = search(widths(1), {.searcher = grid_search()});
  ASSERT_FALSE(x.error) << x.error->message;
  auto journal = bytes_of(path() / "sweep.jsonl");
  auto refused = data_parallel_trainer{train, settings{}, run()}.fit();
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, ec::conflict);
  EXPECT_EQ(refused.error->message,
            path().string()
              + " is the folder of a sweep: choose another run.name");
  EXPECT_FALSE(fs::exists(path() / "run.json"));
  EXPECT_EQ(bytes_of(path() / "sweep.jsonl"), journal);
}

TEST_F(sweep_test, names_a_metric_that_no_trial_reports) {
  auto x =
    search(widths(3),
           {.metric = "los", .searcher = grid_search(), .max_concurrent = 1});
  EXPECT_THAT(message_of(x), HasSubstr("metric 'los'; trial-0000 reported: "
                                       "loss=0.333333"));
  ASSERT_EQ(x.trials.size(), 1u);
  EXPECT_EQ(
    search(widths(3),
           {.metric = "los", .searcher = grid_search(), .max_concurrent = 1})
      .trials.size(),
    1u)
    << "no trial begins as long as it is wrong";
  x = search(widths(3), {.searcher = grid_search(), .max_concurrent = 1});
  EXPECT_EQ(message_of(x), "");
  EXPECT_EQ(x.trials.size(), 3u);
  EXPECT_NEAR(*x.trials[0].score, 1.0 / 3, 1e-9) << "nothing was lost";
}

TEST_F(sweep_test, refuses_what_can_never_work_and_writes_nothing) {
  auto refusal = [&](search_space space, sweep_options options = {}) {
    if (!options.searcher)
      options.searcher = grid_search();
    return message_of(search(std::move(space), std::move(options)));
  };
  EXPECT_THAT(refusal({}), HasSubstr("has no params"));
  EXPECT_THAT(refusal({{"lrr", uniform(0, 1)}}),
              HasSubstr("'lrr' of the sweep: there is no field 'lrr'"));
  EXPECT_EQ(refusal({{"width", uniform(2, 8)}}),
            "the param 'width' of the sweep is an integer field, but uniform "
            "chooses numbers such as 4.292: use integers");
  EXPECT_THAT(refusal({{"width", log_uniform(2, 8)}}),
              HasSubstr("use log_integers"));
  EXPECT_THAT(refusal({{"width", choice({1, 1.5})}}),
              HasSubstr("width: expected integer"));
  EXPECT_THAT(refusal({{"width", integers(1, std::int64_t{1} << 40)}}),
              HasSubstr("out of range"));
  EXPECT_THAT(refusal(widths(2), {.searcher = grid_search(0)}),
              HasSubstr("grid_search: steps must be >= 1, got 0"));
  EXPECT_THAT(refusal(widths(2), {.searcher = random_search()}),
              HasSubstr("trials is unset"));
  EXPECT_THAT(refusal(widths(2), {.trials = 0}), HasSubstr("trials"));
  EXPECT_THAT(refusal(widths(2), {.trials = -1}),
              HasSubstr("sweep_options::trials must be >= 1 or unset, got -1"));
  EXPECT_THAT(refusal(widths(2), {.max_concurrent = 0}),
              HasSubstr("max_concurrent"));
  EXPECT_THAT(refusal(widths(2), {.max_failed_trials = 0}),
              HasSubstr("max_failed_trials"));
  EXPECT_THAT(refusal(widths(2), {.max_failed_trials = -2}),
              HasSubstr("max_failed_trials must be >= 1 or unset, got -2"));
  EXPECT_THAT(refusal(widths(2), {.halving = halving_options{.reduction = 1}}),
              HasSubstr("halving.reduction"));
  auto unnamed =
    sweep{data_parallel_trainer{train, settings{}, run()}, widths(2), {}}.fit();
  EXPECT_THAT(message_of(unnamed), HasSubstr("metric is empty"));
  auto shared = run();
  shared.run.callbacks = {std::make_shared<user_callback>()};
  auto x =
    sweep{data_parallel_trainer{train, settings{}, shared},
          widths(2),
          {.metric = "loss", .searcher = grid_search(), .max_concurrent = 2}}
      .fit();
  EXPECT_THAT(message_of(x), HasSubstr("serves one run at a time"));
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(sweep_test, refuses_what_is_for_single_runs_and_writes_nothing) {
  auto refusal = [&](const std::function<void(train_options&)>& change) {
    auto options = run();
    change(options);
    return message_of(sweep{data_parallel_trainer{train, settings{}, options},
                            widths(2),
                            {.metric = "loss", .searcher = grid_search()}}
                        .fit());
  };
  EXPECT_EQ(refusal([](auto& x) {
              x.scaling.num_workers = 2;
              x.scaling.hosts = {"host-a", "host-b"};
            }),
            "the trials of a sweep run on this host, but there are the hosts "
            "host-a, host-b: start the sweep on one host, or one run on all");
  EXPECT_THAT(refusal([](auto& x) {
                x.scaling.num_workers = 1;
                x.scaling.hosts = {"host-a", "host-b"};
              }),
              HasSubstr("but there are the hosts host-a, host-b: "));
  EXPECT_THAT(refusal([](auto& x) {
                x.scaling.num_workers = 1;
                x.scaling.hosts = {"host-a"};
              }),
              HasSubstr("but there is the host host-a: "));
  EXPECT_THAT(refusal([](auto& x) {
                x.scaling.num_workers = 1;
                x.scaling.hosts = {"localhost", "host-b"};
              }),
              HasSubstr("but there are the hosts localhost, host-b: "));
  EXPECT_THAT(refusal([](auto& x) { x.scaling.agents = 2; }),
              HasSubstr("agents of 2 other hosts are to join"));
  EXPECT_THAT(refusal([](auto& x) { x.run.agent_ticket = "ticket"; }),
              HasSubstr("agent_ticket lets other hosts join"));
  EXPECT_THAT(refusal([](auto& x) { x.run.if_finished = if_finished::number; }),
              HasSubstr("if_finished must be `refuse` for a sweep"));
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(sweep_test, refuses_hosts_that_its_trials_would_leave_unused) {
  const char* program[] = {"search"};
  auto options = run();
  options.scaling.where = placement::in_process;
  auto refusal = [&] {
    environment_guard guard{
      {{"TROUPE_DRIVER", "localhost:4444"}, {"TROUPE_AGENTS", "3"}}};
    find_launch(1, program);
    return message_of(sweep{data_parallel_trainer{train, settings{}, options},
                            widths(2),
                            {.metric = "loss", .searcher = grid_search()}}
                        .fit());
  }();
  find_launch(1, program);
  EXPECT_THAT(refusal, HasSubstr("agents of 3 other hosts are to join"));
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(sweep_test, a_trial_that_the_config_refuses_has_failed) {
  auto x = search({{"width", choice({12, 13, 14})}},
                  {.searcher = grid_search(), .max_concurrent = 1});
  EXPECT_EQ(message_of(x), "");
  ASSERT_EQ(x.trials.size(), 3u);
  EXPECT_EQ(x.trials[0].status, run_status_kind::finished);
  EXPECT_EQ(x.trials[1].status, run_status_kind::errored);
  EXPECT_EQ(x.trials[1].reason, "width: 13 brings bad luck");
  EXPECT_EQ(x.trials[2].status, run_status_kind::finished);
  EXPECT_FALSE(fs::exists(path() / "trial-0001")) << "no run began";
}

TEST_F(sweep_test, names_prepare_if_it_throws) {
  auto x = search(widths(2), {.searcher = grid_search(),
                              .max_concurrent = 1,
                              .prepare = [](const trial& one, run_config&) {
                                if (one.index == 1)
                                  throw std::runtime_error{"no port is free"};
                              }});
  EXPECT_EQ(message_of(x),
            "trial-0001: sweep_options::prepare threw: no port is free");
  ASSERT_EQ(x.trials.size(), 2u);
  EXPECT_EQ(x.trials[0].status, run_status_kind::finished);
  EXPECT_EQ(x.trials[1].status, run_status_kind::running) << "to be resumed";
}

} // namespace troupe::internal::test
