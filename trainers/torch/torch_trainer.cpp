#include "troupe/trainers/torch/torch_trainer.hpp"

#include "troupe/trainers/run_handle.hpp"

namespace troupe {

expected<run_handle> torch_trainer::start(caf::actor_system& system) const {
  return run_handle::start(request_, system);
}

} // namespace troupe
