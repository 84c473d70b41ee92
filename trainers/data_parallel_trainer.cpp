#include "troupe/trainers/data_parallel_trainer.hpp"

#include "troupe/trainers/run_handle.hpp"

namespace troupe {

using namespace internal;

expected<run_handle>
data_parallel_trainer::start(caf::actor_system& system) const {
  return run_handle::start(request_, system);
}

} // namespace troupe
