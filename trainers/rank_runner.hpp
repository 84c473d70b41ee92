#pragma once

#include <functional>
#include <memory>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/trainers/retired_contexts.hpp"
#include "troupe/trainers/train_loop.hpp"

namespace troupe::internal {

/// How a rank's loop ended.
struct loop_outcome {
  error reason;          ///< `ec::none`: it returned.
  bool stopped = false;  ///< It left because it was asked to.
  std::string type = {}; ///< Type of its exception.
  bool logged = false;   ///< The rank's log has it.
};

/// Runs *loop* with its hooks and turns exceptions into a value. Calls *failed*
/// with a failure before the last hook, which may take long.
loop_outcome run_loop(const train_loop& loop, train_context& context,
                      const std::function<void(loop_outcome&)>& failed = {});

/// Finds the loop that a rank is to run.
using loop_finder = std::function<expected<train_loop>(const loop_spec&)>;

struct rank_args {
  worker_group_actor group;
  std::uint64_t attempt = 0;
  int rank = 0;
  int segment = -1; ///< Descriptor of the shared segment in this process.
  loop_finder find;
  std::shared_ptr<retired_contexts> kept;
  network_thread* network = nullptr; ///< Of the rank's own process, if any.
};

/// A rank from its first message to its last, on the calling thread. Returns an
/// error that it could not send to its worker group.
expected<void> run_rank(caf::actor_system& system, const rank_args& args);

} // namespace troupe::internal
