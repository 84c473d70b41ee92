#include "troupe/trainers/rank_process.hpp"

#include <cstdio>

#include <caf/actor_system.hpp>

#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"
#include "troupe/trainers/loop_address.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe::internal {

namespace {

expected<void> run(const std::string& payload,
                   const std::vector<int>& descriptors) {
  TROUPE_TRY(auto bootstrap, rank_bootstrap::from_bytes(payload));
  if (descriptors.size() < 3)
    return failure(ec::protocol,
                   "a rank process got no connection to its driver");
  TROUPE_TRY(auto lock,
             join_attempt({unique_fd{descriptors[2]}, bootstrap.token}));
  lock.release(); // Open until this process ends.
  // Never destroyed: the process ends right after its goodbye, and an orderly
  // shutdown of the system would only delay that.
  static auto config = new system_config;
  static auto system = new caf::actor_system{config->with_own_network_thread()};
  static auto network = new network_thread{*system};
  static auto kept = new auto{std::make_shared<retired_contexts>()};
  TROUPE_TRY(auto agent,
             connect<host_agent_actor>(*system, unique_fd{descriptors[1]}));
  return run_rank(*system, {std::move(agent), bootstrap.attempt, bootstrap.rank,
                            descriptors[0], resolve_loop, *kept, network});
}

} // namespace

int rank_process(std::string payload, std::vector<int> descriptors) {
  auto ok = run(payload, descriptors);
  if (ok)
    return 0;
  std::fprintf(stderr, "troupe: %s\n", ok.error().message.c_str());
  return 1;
}

} // namespace troupe::internal
