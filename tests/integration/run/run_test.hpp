#pragma once

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <troupe/train.hpp>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// What one rank does at one of its reports. Travels to rank processes as the
/// loop's config.
struct fault_plan {
  std::string action;    ///< One of the actions of `misbehave`; empty: none.
  int rank = -1;         ///< Which rank; -1: every rank.
  int step = 0;          ///< Before which of its reports.
  int attempt = 0;       ///< In which attempt; -1: in every one.
  int steps = 3;         ///< Reports of a run without faults.
  int checkpoint_by = 0; ///< Rank that saves; -1: none, -2: every rank.
  std::string text;      ///< For the action, such as a path.

  template <class Archive>
  void serialize(Archive& ar) {
    ar(action, rank, step, attempt, steps, checkpoint_by, text);
  }
};

/// Counts to `plan.steps` with a report at each step, resumes from a
/// checkpoint, and misbehaves where the plan says so.
void counting_loop(train_context& context, const fault_plan& plan);

/// Runs side by side on GPUs that this process, a child of a test, pretends to
/// have. The exit code.
int run_on_gpus(const fs::path& storage);

/// Starts a run and stops the start once it has begun an attempt. The exit
/// code: 0 if the run was preempted.
int stop_start_late(const fs::path& storage);

/// Runs of loops in a storage folder of their own.
class run_test : public ::testing::Test {
protected:
  run_config config(std::string name = "run") const {
    run_config x;
    x.name = std::move(name);
    x.storage_path = storage_.path();
    x.quiet = true;
    return x;
  }

  result run(const fault_plan& plan, int workers = 2, int max_failures = 0) {
    auto options =
      train_options{.scaling = {.num_workers = workers}, .run = config()};
    options.run.failure.max_failures = max_failures;
    return run(plan, std::move(options));
  }

  result run(const fault_plan& plan, train_options options) {
    return data_parallel_trainer{counting_loop, plan, std::move(options)}.fit();
  }

  fs::path run_path() const { return storage_ / "run"; }

  /// The actors of no run contradict each other.
  void TearDown() override {
    boost::system::error_code gone;
    for (fs::directory_iterator i{storage_.path(), gone}, end;
         !gone && i != end; i.increment(gone))
      EXPECT_EQ(bytes_of(i->path() / "journal.jsonl").find("event_refused"),
                std::string::npos)
        << i->path();
  }

  temporary_folder storage_;
};

/// For the names of tests with each placement.
inline std::string
name_of_placement(const ::testing::TestParamInfo<scaling_config>& x) {
  return x.param.num_workers == 0                 ? "inline"
         : x.param.where == placement::in_process ? "threads"
                                                  : "processes";
}

/// The only failed rank of *x*; fails the test if there is another number.
const rank_failure& only_failure(const result& x, int rank);

} // namespace troupe::internal::test
