#include "troupe/actors/host_agents.hpp"

#include <algorithm>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal {

host_agents::host_agents(worker_group_actor::pointer self, host_agent_actor own,
                         std::function<void(const caf::down_msg&)> on_down)
  : self_(self), on_down_(std::move(on_down)) {
  assign(0, std::move(own));
  // A group that dies of a defect has its agents kill the ranks.
  self->attach_functor([known = by_host_](const caf::error& reason) {
    for (auto& [host, agent] : *known)
      if (reason == caf::none)
        caf::anon_send_exit(agent, caf::exit_reason::user_shutdown);
      else if (says_unfinished(reason))
        send_exit_anonymous(agent, reason);
      else
        caf::anon_send_exit(agent, caf::exit_reason::kill);
  });
}

void host_agents::assign(std::size_t host, host_agent_actor agent) {
  std::erase(without_host_, agent);
  watch(agent);
  by_host_->insert_or_assign(host, std::move(agent));
}

void host_agents::keep_waiting(host_agent_actor agent) {
  if (std::ranges::find(without_host_, agent) != without_host_.end())
    return;
  watch(agent);
  without_host_.push_back(std::move(agent));
}

void host_agents::watch(const host_agent_actor& agent) {
  if (watched_.insert(agent.address()).second)
    monitor(self_, agent, on_down_);
}

void host_agents::offer_places() {
  for (auto& agent : without_host_)
    send(self_, agent, ask_for_place{});
}

host_agent_actor host_agents::drop(std::size_t host) {
  auto result = at(host);
  by_host_->erase(host);
  return result;
}

std::optional<std::size_t> host_agents::ended(const caf::actor_addr& agent) {
  auto is_it = [&agent](auto& x) { return x.address() == agent; };
  watched_.erase(agent);
  said_.erase(agent);
  std::erase_if(without_host_, is_it);
  for (auto& [host, its] : *by_host_)
    if (is_it(its))
      return host;
  return std::nullopt;
}

bool host_agents::is_new(const host_agent_actor& agent,
                         const std::string& text) {
  return said_[agent.address()].insert(text).second;
}

host_agent_actor host_agents::at(std::size_t host) const {
  auto found = by_host_->find(host);
  return found != by_host_->end() ? found->second : host_agent_actor{};
}

} // namespace troupe::internal
