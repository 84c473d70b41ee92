// What ranks call around their loops and after their reports, wherever they
// are.

#include <atomic>
#include <fstream>

#include <gmock/gmock.h>

#include "tests/integration/run/run_test.hpp"

namespace troupe::internal::test {

using testing::AllOf;
using testing::HasSubstr;

namespace {

/// Ranks are processes: what they did lies in a file of the rank.
void note(train_context& context, const std::string& line) {
  auto file = context.run_path() / ("hooks_" + std::to_string(context.rank()));
  std::ofstream{file.string(), std::ios::app} << line << '\n';
}

void note_begin(train_context& context) {
  note(context, "before_loop " + std::to_string(context.attempt()));
}

void note_end(train_context& context, const error& reason) {
  note(context, "after_loop " + (reason ? reason.message : "returned"));
}

void note_report(train_context& context, const metrics& values,
                 const std::optional<checkpoint>& files) {
  auto there = files && fs::exists(files->path() / "manifest.json");
  note(context,
       "on_report " + to_string(values) + (there ? ' ' + files->name() : ""));
}

const rank_hooks noting{note_begin, note_end, note_report};

} // namespace

class rank_hooks_test : public run_test,
                        public ::testing::WithParamInterface<scaling_config> {
protected:
  train_options options() { return {.scaling = GetParam(), .run = config()}; }
  std::string heard(int rank) {
    return bytes_of(run_path() / ("hooks_" + std::to_string(rank)));
  }
};

TEST_P(rank_hooks_test, are_called_around_the_loop_and_after_each_report) {
  auto given = options();
  given.run.rank_hooks = noting;
  auto outcome = run({.steps = 2}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(heard(0), "before_loop 0\n"
                      "on_report rank=0 step=0 checkpoint_000000\n"
                      "on_report rank=0 step=1 checkpoint_000001\n"
                      "after_loop returned\n");
  if (GetParam().num_workers > 1) {
    EXPECT_EQ(heard(1), "before_loop 0\n"
                        "on_report rank=1 step=0\n"
                        "on_report rank=1 step=1\n"
                        "after_loop returned\n");
  }
}

/// Shows what the rank's log has so far.
void read_own_log(train_context& context, const error&) {
  auto log = context.run_path() / "logs"
             / ("rank_" + std::to_string(context.rank()) + ".log");
  note(context, fs::exists(log) ? bytes_of(log) : "no log");
}

TEST_P(rank_hooks_test, find_in_the_log_of_a_process_why_its_loop_failed) {
  auto given = options();
  given.run.rank_hooks.after_loop = read_own_log;
  auto outcome = run({.action = "throw", .rank = 0, .steps = 1}, given);
  ASSERT_TRUE(outcome.error);
  auto is_process =
    GetParam().num_workers > 0 && GetParam().where != placement::in_process;
  EXPECT_EQ(heard(0).find("the loss is a banana") != std::string::npos,
            is_process)
    << heard(0);
}

TEST_P(rank_hooks_test, learn_why_the_loop_failed) {
  auto given = options();
  given.run.rank_hooks = noting;
  given.run.failure.max_failures = 1;
  auto outcome =
    run({.action = "throw", .rank = 0, .step = 1, .steps = 2}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_THAT(heard(0), AllOf(HasSubstr("after_loop the loss is a banana\n"),
                              HasSubstr("before_loop 1\n"),
                              HasSubstr("after_loop returned\n")));
}

TEST_P(rank_hooks_test, that_throw_fail_the_rank_by_name) {
  for (std::string hook : {"before_loop", "after_loop", "on_report"}) {
    auto given = options();
    given.run.name = hook;
    if (hook == "before_loop")
      given.run.rank_hooks.before_loop = [](train_context& context) {
        if (context.rank() == 0)
          throw std::runtime_error{"tripped"};
      };
    else if (hook == "after_loop")
      given.run.rank_hooks.after_loop = [](train_context& context,
                                           const error&) {
        if (context.rank() == 0)
          throw std::runtime_error{"tripped"};
      };
    else
      given.run.rank_hooks.on_report = [](train_context& context,
                                          const metrics&,
                                          const std::optional<checkpoint>&) {
        if (context.rank() == 0)
          throw std::runtime_error{"tripped"};
      };
    auto outcome = run({.steps = 1}, given);
    EXPECT_EQ(only_failure(outcome, 0).what,
              "the hook " + hook + " threw: tripped");
  }
}

TEST_P(rank_hooks_test, that_throw_cannot_be_swallowed_by_a_loop) {
  auto given = options();
  given.run.rank_hooks.on_report = [](train_context& context, const metrics&,
                                      const std::optional<checkpoint>&) {
    if (context.rank() == 0)
      throw std::runtime_error{"tripped"};
  };
  auto swallow = [](train_context& context) {
    try {
      context.report({{"x", 1}});
    } catch (const std::exception&) {
    }
  };
  auto outcome = data_parallel_trainer{swallow, given}.fit();
  EXPECT_EQ(only_failure(outcome, 0).what, "the hook on_report threw: tripped");
}

TEST_P(rank_hooks_test, that_report_from_on_report_are_refused) {
  auto given = options();
  given.run.rank_hooks.on_report = [](train_context& context, const metrics&,
                                      const std::optional<checkpoint>&) {
    if (context.rank() == 0)
      context.report({{"again", 1}});
  };
  auto outcome = run({.steps = 1, .checkpoint_by = -1}, given);
  EXPECT_THAT(only_failure(outcome, 0).what,
              HasSubstr("report() was called by on_report"));
}

INSTANTIATE_TEST_SUITE_P(placements, rank_hooks_test,
                         ::testing::Values(scaling_config{.num_workers = 2},
                                           scaling_config{
                                             .num_workers = 2,
                                             .where = placement::in_process},
                                           scaling_config{.num_workers = 0}),
                         name_of_placement);

TEST_F(run_test, a_closure_is_a_hook_in_threads) {
  std::atomic<int> begun{0};
  train_options given{
    .scaling = {.num_workers = 3, .where = placement::in_process},
    .run = config()};
  given.run.rank_hooks.before_loop = [&begun](train_context&) { ++begun; };
  auto outcome = run({.steps = 1}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(begun, 3);
}

TEST_F(run_test, a_closure_is_refused_as_a_hook_in_processes) {
  int calls = 0;
  train_options given{.scaling = {.num_workers = 2}, .run = config()};
  given.run.rank_hooks.after_loop = [&calls](train_context&, const error&) {
    ++calls;
  };
  auto outcome = run({}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::invalid_config);
  EXPECT_THAT(outcome.error->message,
              HasSubstr("run.rank_hooks.after_loop is a closure"));
  EXPECT_FALSE(fs::exists(run_path()));
}

} // namespace troupe::internal::test
