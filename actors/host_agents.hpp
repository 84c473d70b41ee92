#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/actor_addr.hpp>
#include <caf/system_messages.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"

namespace troupe::internal {

/// The agents of a run's hosts: which host each has, and which wait for one.
/// They end with the worker group.
class host_agents {
public:
  /// Monitors all agents for *self*, the worker group: *on_down* is called once
  /// one has ended. *own* is that of the driver's host.
  host_agents(worker_group_actor::pointer self, host_agent_actor own,
              std::function<void(const caf::down_msg&)> on_down);

  /// *agent* has *host* from now on.
  void assign(std::size_t host, host_agent_actor agent);

  /// *agent* was refused, but may ask again.
  void keep_waiting(host_agent_actor agent);

  /// A place may be free: agents that were refused ask again.
  void offer_places();

  /// *host* has no agent from now on. Returns the one that it had; invalid:
  /// none.
  host_agent_actor drop(std::size_t host);

  /// *agent* has ended. Returns the host that it has; nothing: none.
  std::optional<std::size_t> ended(const caf::actor_addr& agent);

  /// Whether *text* is said of *agent* for the first time.
  bool is_new(const host_agent_actor& agent, const std::string& text);

  /// The agent of *host*; invalid if there is none.
  host_agent_actor at(std::size_t host) const;

  const std::map<std::size_t, host_agent_actor>& by_host() const {
    return *by_host_;
  }

private:
  /// Monitors *agent*, once however often it says hello.
  void watch(const host_agent_actor& agent);

  worker_group_actor::pointer self_;
  std::function<void(const caf::down_msg&)> on_down_;
  /// Outlives the actor.
  std::shared_ptr<std::map<std::size_t, host_agent_actor>> by_host_ =
    std::make_shared<std::map<std::size_t, host_agent_actor>>();
  std::vector<host_agent_actor> without_host_;
  std::set<caf::actor_addr> watched_;
  /// What was said of each.
  std::map<caf::actor_addr, std::set<std::string>> said_;
};

} // namespace troupe::internal
