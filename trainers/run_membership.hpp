#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>

#include "troupe/actors/agent_pulse.hpp"
#include "troupe/actors/host_agent.hpp"
#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/agent_facts.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/inheritance.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/trainers/driver_link.hpp"
#include "troupe/trainers/node_agent.hpp"

namespace troupe::internal {

/// How long an agent asks for a place.
inline constexpr auto join_patience = std::chrono::seconds{120};

/// Why an agent ends.
struct agent_end {
  agent_exit code = agent_exit::done;
  std::string why;
};

/// The first thing that ends this agent. Any thread.
class agent_ending {
public:
  void end(agent_end x) {
    std::lock_guard guard{mutex_};
    if (first_)
      return;
    first_ = std::move(x);
    event_.notify();
  }

  std::optional<agent_end> first() const {
    std::lock_guard guard{mutex_};
    return first_;
  }

  int fd() const noexcept { return event_.fd(); }

private:
  mutable std::mutex mutex_;
  std::optional<agent_end> first_;
  wake_event event_;
};

/// Takes warnings about connections of ranks to the driver, once the agent has
/// a place. Any thread.
class warning_path {
public:
  void open(worker_group_actor group, std::uint32_t node_rank,
            std::uint64_t incarnation);
  void close();
  void pass_on(std::string text);

private:
  std::mutex mutex_; // guards the rest
  worker_group_actor group_;
  std::uint32_t node_rank_ = 0;
  std::uint64_t incarnation_ = 0;
};

class first_look;

/// What an agent is in one run: connected to the driver, with a place from
/// `join` on.
class run_membership {
public:
  using note_function = std::function<void(const std::string&)>;

  /// *launch* is as in `agent_facts`; *note* gets what the agent waits for, and
  /// that it has joined; its ranks get *inherited*.
  run_membership(spawner_connection* spawner, std::uint64_t launch,
                 note_function note,
                 std::shared_ptr<const inheritance> inherited);
  run_membership(const run_membership&) = delete;
  run_membership& operator=(const run_membership&) = delete;
  ~run_membership();

  /// Joins the run at the other side of *driver*, unless the descriptor *stop*
  /// becomes readable before.
  expected<void> join(found_driver driver, int stop);

  /// The driver learns that this host is about to leave: it lets ranks save
  /// what they have, and then this agent go.
  void give_notice(std::string reason,
                   std::optional<std::chrono::milliseconds> grace);

  const std::shared_ptr<agent_ending>& ending() const { return ending_; }

  /// Those of the run, once it has joined.
  const std::vector<int>& preempt_signals() const { return preempt_signals_; }

private:
  /// Without a limit, as in `agent_pulse`: the end of the connection to the
  /// driver ends the wait, or *stop*.
  template <class Answer, class... Message>
  expected<Answer> ask(int stop, Message... message);
  expected<void> find_place(const agent_facts& facts, int stop);
  expected<void> take_place(agent_facts facts, first_look& look, int stop);

  std::uint64_t launch_;
  note_function note_;
  std::uint32_t node_rank_ = 0;
  std::uint64_t incarnation_ = 0;
  std::vector<int> preempt_signals_;
  system_config config_;
  caf::actor_system system_;
  std::shared_ptr<agent_ending> ending_ = std::make_shared<agent_ending>();
  /// It was refused a place, and is to ask again.
  std::shared_ptr<const wake_event> called_ =
    std::make_shared<const wake_event>();
  std::shared_ptr<warning_path> warnings_ = std::make_shared<warning_path>();
  std::optional<private_endpoint> endpoint_;
  std::shared_ptr<process_launcher> launcher_;
  host_agent_actor agent_;
  agent_pulse_actor pulse_;
  worker_group_actor group_;
  std::shared_ptr<driver_redialer> redialer_;
  /// Time that it has waited for answers.
  std::chrono::steady_clock::duration asked_for_{0};
  bool is_unanswered_ = false; ///< It has left before an answer came.
};

} // namespace troupe::internal
