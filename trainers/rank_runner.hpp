#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/trainers/retired_contexts.hpp"
#include "troupe/trainers/train_loop.hpp"

namespace troupe::internal {

/// What a rank starts with.
struct rank_args {
  host_agent_actor agent;
  std::uint64_t attempt = 0;
  int rank = 0;
  int segment = -1; ///< Descriptor of the shared segment in this process.
  /// Finds its loop.
  std::function<expected<train_loop>(const loop_spec&)> find;
  std::shared_ptr<retired_contexts> kept;
  network_thread* network = nullptr; ///< Of the rank's own process, if any.
  int threads = 0;                   ///< See `rank_facts::threads`.
};

/// A rank from its first message to its last, on the calling thread. Returns an
/// error that it could not send to the agent of its host.
expected<void> run_rank(caf::actor_system& system, const rank_args& args);

/// The main function of a rank process with the `rank_bootstrap` in *payload*;
/// returns its exit code. 0: the worker group knows how the loop ended.
int rank_process(std::string payload, std::vector<int> descriptors);

} // namespace troupe::internal
