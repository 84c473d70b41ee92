#include "troupe/trainers/run_request.hpp"

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

expected<void> refuse_closures(const rank_hooks& x) {
  const std::pair<bool, const char*> hooks[] = {
    {x.before_loop.is_closure(), "before_loop"},
    {x.after_loop.is_closure(), "after_loop"},
    {x.on_report.is_closure(), "on_report"}};
  for (auto& [is_closure, name] : hooks)
    if (is_closure)
      return failure(ec::invalid_config,
                     std::string{"run.rank_hooks."} + name
                       + " is a closure, which other processes cannot find: "
                         "give a function or a captureless lambda, or set "
                         "scaling.where to placement::in_process");
  return {};
}

} // namespace

expected<void> validate(const run_request& x) {
  TROUPE_TRY_VOID(validate(x.scaling, local_resources()));
  TROUPE_TRY_VOID(validate(x.run));
  if (x.loop.problem)
    return tl::unexpected{x.loop.problem};
  for (auto& callback : x.run.callbacks)
    if (!callback)
      return failure(ec::invalid_config, "run.callbacks has a null pointer");
  for (auto& tracker : x.run.trackers)
    if (!tracker)
      return failure(ec::invalid_config, "run.trackers has a null pointer");
  for (auto& actor : x.run.callback_actors)
    if (!actor)
      return failure(ec::invalid_config,
                     "run.callback_actors has a null pointer");
  if (runs_here(x.scaling))
    return {};
  if (x.loop.closure)
    return failure(ec::invalid_config,
                   "an in_process_loop cannot run in processes: set "
                   "scaling.where to placement::in_process");
  if (x.loop.config.size() > max_config_bytes)
    return failure(ec::invalid_config,
                   concat("the config of the train loop has ",
                          x.loop.config.size(), " bytes, the limit is ",
                          max_config_bytes,
                          ": give it the path of a file that ranks read"));
  return refuse_closures(x.run.rank_hooks);
}

} // namespace troupe::internal
