#pragma once

#include <deque>

#include <caf/typed_actor.hpp>

#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/trainers/rank_link.hpp"
#include "troupe/trainers/remote_store.hpp"

namespace troupe::internal {

/// A rank's link to the agent of its host. In a rank process the loop's thread
/// runs the network while it waits for answers, so that no other thread has to
/// wake up.
class actor_link : public rank_link {
public:
  actor_link(caf::actor_system& system, network_thread* network,
             agent_link args);

  expected<void> report(rank_report x, bool wait) override;
  expected<void> log(loop_event x) override;
  expected<void> barrier() override;
  expected<std::string> broadcast(expected<std::string> bytes) override;
  expected<std::vector<reported_checkpoint>> reported_checkpoints() override;
  expected<bool> has_checkpoint(const std::string& name) override;
  key_value_store& store() override { return store_; }
  std::shared_ptr<rank_activity> activity() override {
    return args_.activity->get();
  }
  std::optional<link_credentials> credentials() const override {
    return args_.credentials;
  }
  bool stop_requested() const noexcept override;
  std::optional<troupe::stop_info> stop_info() const override;
  void on_abort(std::function<void(const error&)> f) override;

  /// Waits for the reports that were sent without waiting.
  expected<void> drain();

  // -- for the rank's mailbox
  /// Makes *box* known; the result is what others send to.
  expected<caf::actor> open_mailbox(const internal::open_mailbox& x,
                                    const postbox_actor& box);
  bool has_mailbox() const noexcept { return has_mailbox_; }
  void note_mailbox(bool is_there) noexcept { has_mailbox_ = is_there; }
  caf::actor_system& system() noexcept { return system_; }
  network_thread* network() noexcept { return network_; }
  const agent_link& args() const noexcept { return args_; }

private:
  /// Events that may be under way before `log` waits for the journal.
  static constexpr std::size_t max_events_ahead = 64;

  using report_request = decltype(request(
    std::declval<caf::blocking_actor*>(), std::declval<host_agent_actor&>(),
    caf::infinite, std::declval<internal::report>()));

  template <class Answer, class... Message>
  expected<Answer> ask(Message... message);
  /// Takes answers to reports, the oldest first, until *left* are under way.
  expected<void> receive(std::size_t left);
  void note_stop(std::optional<stop_notice>& x);
  expected<std::string> join(meeting_kind kind, expected<std::string> payload);

  caf::actor_system& system_;
  network_thread* network_;
  network_waiter self_;
  agent_link args_;
  std::deque<report_request> under_way_;
  std::uint64_t barriers_ = 0;
  std::size_t logged_ = 0; // since the last one that was awaited
  bool has_mailbox_ = false;
  remote_store store_;
};

} // namespace troupe::internal
