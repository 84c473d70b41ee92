#pragma once

#include <csignal>
#include <string>
#include <thread>

#include <troupe/train.hpp>

#include "tests/integration/run/run_test.hpp"

// What tests of runs that have to go share.

namespace troupe::internal::test {

/// Reports until the run is preempted, then once more: after which report it
/// left.
inline void report_until_preempted(train_context& context,
                                   const fault_plan& plan) {
  int step = 0;
  while (!context.stop_requested()) {
    if (plan.action == "raise" && step == plan.step)
      raise(SIGUSR1);
    context.report({{"step", step++}},
                   report_options{.barrier = plan.action != "ahead"});
    // The ranks are not equally fast.
    for (int i = 0; i < context.rank() * 50; ++i)
      std::this_thread::yield();
  }
  auto why = context.stop_info();
  auto kind = why ? static_cast<int>(why->kind) : -1;
  context.report({{"left_after", step}, {"kind", kind}});
}

/// How a result ends of a run that was stopped or preempted.
inline std::string resumed_by(const std::string& name) {
  return "; the next run with run.name = \"" + name + "\" resumes it";
}

inline constexpr auto preempted_kind =
  static_cast<int>(stop_info::kind_type::preempted);

} // namespace troupe::internal::test
