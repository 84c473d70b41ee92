#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "troupe/callbacks/user_callback.hpp"

namespace troupe::internal::test {

/// Records its calls, and throws when asked to.
class recorded_callback : public user_callback {
public:
  void before_run(const run_context& run) override {
    note("before_run " + std::to_string(run.attempt));
  }

  void after_report(const run_context& run, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data) override {
    auto text = "after_report " + std::to_string(run.attempt);
    for (auto& x : values)
      text += " [" + to_string(x) + ']';
    note(data ? text + ' ' + data->name() : text);
  }

  void after_exception(const run_context& run,
                       const std::map<int, rank_failure>& ranks) override {
    auto text = "after_exception " + std::to_string(run.attempt);
    for (auto& [rank, failure] : ranks)
      text += " [" + std::to_string(rank) + ": " + to_string(failure) + ']';
    note(text);
  }

  void after_run(const run_context&, const result& outcome) override {
    note("after_run " + std::string{to_string(outcome.status)});
  }

  std::vector<std::string> calls;
  std::string throws_in; ///< Beginning of the call that throws; empty: none.

private:
  void note(std::string call) {
    calls.push_back(call);
    if (!throws_in.empty() && call.starts_with(throws_in))
      throw std::runtime_error{"the callback had enough"};
  }
};

} // namespace troupe::internal::test
