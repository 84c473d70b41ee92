#include "troupe/trainers/context_of.hpp"

namespace troupe::internal {

run_context context_of(const run_request& request, const run_store& store) {
  run_context x;
  x.name = *request.run.name;
  x.path = store.path().string();
  x.start_time = run_context::clock::now();
  x.id = store.description().id;
  x.world_size = world_size_of(request.scaling);
  x.config = request.loop.config_text;
  return x;
}

} // namespace troupe::internal
