#include "troupe/trainers/data_parallel_trainer.hpp"

#include "troupe/trainers/run_parts.hpp"

namespace troupe {

using namespace internal;

expected<run_handle>
data_parallel_trainer::start(caf::actor_system& system,
                             const std::stop_token& preempted) const {
  TROUPE_TRY(auto prepared, prepare(request_));
  run_surroundings around;
  around.given_up = [preempted] { return preempted.stop_requested(); };
  around.end_of_given_up = [preempted](error reason) {
    auto end = failed_result(std::move(reason));
    if (preempted.stop_requested())
      end.status = run_status_kind::preempted;
    return end;
  };
  auto run = run_access::start(std::move(prepared), system, std::move(around));
  if (run && preempted.stop_requested()) // After the attempt had begun.
    run->preempt("the start of the run was stopped");
  return run;
}

} // namespace troupe
