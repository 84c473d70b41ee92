#include "troupe/trainers/run_request.hpp"

namespace troupe {

expected<void> validate(const run_request& x) {
  if (auto ok = validate(x.scaling, local_resources()); !ok)
    return ok;
  if (auto ok = validate(x.run); !ok)
    return ok;
  for (auto& callback : x.run.callbacks)
    if (!callback)
      return failure(ec::invalid_config, "run.callbacks has a null pointer");
  if (x.loop.closure && x.scaling.num_workers > 0
      && x.scaling.where != placement::in_process)
    return failure(ec::invalid_config,
                   "an in_process_loop can not run in processes: set "
                   "scaling.where to placement::in_process");
  return {};
}

} // namespace troupe
