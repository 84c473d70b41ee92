#pragma once

#include "tests/integration/run/run_test.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

/// Writes down every call.
class recording_callback : public user_callback {
public:
  void before_run(const run_context& run) override {
    calls.push_back("before_run " + run.name);
  }
  void after_report(const run_context& run, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data) override {
    calls.push_back("after_report " + std::to_string(values.size())
                    + (data ? " " + data->name() : ""));
    if (data && !fs::exists(data->path()))
      calls.push_back("no such folder");
    attempts.push_back(run.attempt);
  }
  void after_exception(const run_context&,
                       const std::map<int, rank_failure>& ranks) override {
    calls.push_back("after_exception of rank "
                    + std::to_string(ranks.begin()->first));
  }
  void after_run(const run_context&, const result& outcome) override {
    calls.push_back("after_run " + std::string{to_string(outcome.status)});
  }

  std::vector<std::string> calls;
  std::vector<std::uint64_t> attempts;
};

/// Every placement must look the same to the user.
class placement_test : public run_test,
                       public ::testing::WithParamInterface<scaling_config> {
protected:
  train_options options() { return {.scaling = GetParam(), .run = config()}; }
  std::size_t ranks() const {
    return static_cast<std::size_t>(std::max(GetParam().num_workers.max, 1));
  }

  /// Expects the history of *x* to have every report up to its last.
  static void expect_no_gap(const result& x) {
    auto rows = x.metrics_history();
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_FALSE(rows->empty());
    for (std::size_t i = 0; i < rows->size(); ++i)
      EXPECT_EQ((*rows)[i].values[0].at("step"), metric_value{i});
  }

  /// The run's next driver, while this one is still there: as on storage whose
  /// locks another host does not see.
  std::unique_ptr<run_store> oust() {
    fs::remove(run_path() / "lock");
    for (auto& x : fs::directory_iterator{run_path() / "attempts"}) {
      auto claim = bytes_of(x.path());
      fs::remove(x.path());
      write_bytes(x.path(), claim);
    }
    return run_store::open(resolve(config())).value();
  }
};

} // namespace troupe::internal::test
