#include "troupe/trainers/sweep/sweep.hpp"

#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/trainers/run_home.hpp"
#include "troupe/trainers/sweep/sweep_handle.hpp"
#include "troupe/trainers/sweep/sweep_plan.hpp"
#include "troupe/trainers/sweep/sweep_run.hpp"

namespace troupe {

using namespace internal;

namespace {

void run_trials(sweep_run& run, const run_request& request, run_home& home) {
  // CAF ends the program without descriptors, so its system comes first.
  interrupt_watch signals{request.run.preempt_signals};
  run.run(home.system(), &signals);
  if (run.threads_left() > 0)
    home.keep();
}

void fit_into(sweep_result& outcome, const run_request& request,
              const search_space& space, const sweep_options& options) {
  outcome.order = options.order;
  sweep_plan plan{request, space, options};
  sweep_run run{plan, outcome};
  auto home = plan.check().and_then([&] { return run.open(); }).and_then([] {
    return run_home::make(nullptr, false);
  });
  if (home)
    run_trials(run, request, **home);
  else
    outcome.error = std::move(home.error());
  if (outcome.error)
    run.console().note(outcome.error->message);
}

} // namespace

sweep_result sweep::fit() const noexcept {
  sweep_result outcome;
  try {
    fit_into(outcome, request_, space_, options_);
  } catch (...) {
    outcome.error = caught("the sweep could not continue");
  }
  return outcome;
}

expected<sweep_handle> sweep::start(caf::actor_system& system) const {
  return sweep_handle::start(request_, space_, options_, system);
}

} // namespace troupe
