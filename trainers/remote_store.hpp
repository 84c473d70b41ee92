#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <caf/blocking_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/typed_actor.hpp>

#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/hosts/link_credentials.hpp"
#include "troupe/runtime/process/rank_activity.hpp"
#include "troupe/runtime/rendezvous/key_value_store.hpp"
#include "troupe/runtime/run/loop_control.hpp"
#include "troupe/trainers/answer_of.hpp"

namespace troupe::internal {

/// Where a rank shows its waits: in the memory that the ranks of its attempt
/// share, until its loop has ended. Any thread.
class shown_activity {
public:
  explicit shown_activity(std::shared_ptr<rank_activity> x)
    : activity_(std::move(x)) {}

  std::shared_ptr<rank_activity> get() const {
    std::lock_guard guard{mutex_};
    return activity_;
  }

  /// Releases that memory: it is no longer read.
  void end() {
    auto own = std::make_shared<rank_activity>();
    std::lock_guard guard{mutex_};
    activity_.swap(own);
  }

private:
  mutable std::mutex mutex_;
  std::shared_ptr<rank_activity> activity_;
};

/// The connection of a rank to the agent of its host, and what ends the loop.
struct agent_link {
  host_agent_actor agent;
  std::uint64_t attempt = 0;
  int rank = 0;
  std::shared_ptr<loop_control> control;
  std::shared_ptr<shown_activity> activity;
  std::optional<link_credentials> credentials; ///< As `rank_link::credentials`.
};

/// Why a request of the rank behind *link* failed: because the loop is to end,
/// or for *reason*.
error request_error(const agent_link& link, const caf::error& reason);

/// Asks the agent behind *link* and waits for the answer, at most *limit*.
template <class Answer, class Timeout, class... Message>
expected<Answer> request_answer(caf::blocking_actor& self,
                                const agent_link& link, Timeout limit,
                                Message... message) {
  return answer_of<Answer>(
    request(&self, link.agent, limit, std::move(message)...),
    [&](const caf::error& reason) { return request_error(link, reason); });
}

/// The worker group's rendezvous store as a rank sees it. May be used from any
/// thread of the rank. Requests that are answered at once have no limit:
/// a stopped driver answers later, and if the driver dies, the rank dies with
/// it.
class remote_store : public key_value_store {
public:
  remote_store(caf::actor_system& system, const agent_link& link)
    : system_(system), link_(link) {}

  expected<void> set(const std::string& key, std::string value) override;
  expected<std::string> get(const std::string& key, timeout limit) override;
  expected<std::int64_t> add(const std::string& key,
                             std::int64_t amount) override;
  expected<bool> check(const std::vector<std::string>& keys) override;
  expected<void> wait(const std::vector<std::string>& keys,
                      timeout limit) override;
  expected<bool> erase(const std::string& key) override;
  expected<std::int64_t> size() override;
  expected<std::string> compare_set(const std::string& key,
                                    const std::string& expected_value,
                                    std::string desired) override;

private:
  template <class Answer, class Timeout, class Message>
  expected<Answer> ask(Timeout limit, Message message);

  caf::actor_system& system_;
  agent_link link_;
};

} // namespace troupe::internal
