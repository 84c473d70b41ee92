#include "troupe/trainers/data_parallel_trainer.hpp"

#include "troupe/trainers/run_parts.hpp"

namespace troupe {

using namespace internal;

expected<run_handle>
data_parallel_trainer::start(caf::actor_system& system) const {
  TROUPE_TRY(auto prepared, prepare(request_));
  return run_access::start(std::move(prepared), system);
}

} // namespace troupe
