#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/environment_map.hpp"
#include "troupe/runtime/hosts/launch_environment.hpp"
#include "troupe/runtime/process/process_exit.hpp"

namespace troupe::internal {

/// The command that runs *program*, a full path and its arguments, on *host*,
/// by ssh or, for Slurm, in a step of its own. One launcher per host: in a
/// common one, a dead host takes the others along. It runs in *folder*, or if
/// that is empty, where ssh begins. *own* are the variables of this process.
///
/// `ec::invalid_argument` if *host* is not a host name, or a part of *program*
/// cannot be passed on.
expected<std::vector<std::string>>
agent_command(launch_engine engine, std::string_view host,
              const std::vector<std::string>& program,
              const std::string& folder = {}, const environment_map& own = {});

/// The variables for the launcher of *engine* for *host*, as NAME=value, made
/// from *own*, those of this process. No `ssh` asks for anything by a window.
/// For `srun`, without those in which it would find options of the step or job
/// that this process is in: an agent gets all that the job has on its node; of
/// GPUs that are given for the whole job, as many as there are on this one.
std::vector<std::string> launcher_environment(launch_engine engine,
                                              std::string_view host,
                                              environment_map own);

/// Exit code of an agent that says that another launch would not help.
inline constexpr int exit_never_again = 78;

/// How a launcher ended.
struct launch_end {
  std::uint64_t launch = 0;

  /// `lost`: it never began, or its end could not be seen.
  process_exit how;

  /// The last lines of its standard error, without secrets; or why it could not
  /// be started.
  std::string output;

  /// Whether another launch may help: not if the program is not there, the host
  /// does not let this user in, the job of Slurm is over, or the agent says so
  /// by its exit code.
  bool may_help() const;
};

/// The launcher's output in one line, with its exit code or signal.
std::string to_string(const launch_end& x);

/// Is called on the launcher's own thread, one call at a time; must not wait.
struct launch_listener {
  /// The launcher *launch* has all of its input.
  std::function<void(std::uint64_t launch)> delivered;

  /// Called once for each launch.
  std::function<void(launch_end)> ended;

  /// The launcher has said this, in one line, and its agent has not connected
  /// for a while. Called at most once for each launch; may be empty.
  std::function<void(std::uint64_t launch, std::string words)> said;
};

/// Runs the launchers of agents, one process per host, on a thread of its own.
///
/// A launcher lives as long as its agent, and is the agent's standard input:
/// the ticket, then nothing, then its end. An agent that sees that end knows
/// that the launcher or this process is gone. Launchers are started a few at a
/// time; an agent that has connected no longer counts.
class host_launcher {
public:
  struct limits {
    std::size_t starting = 32; ///< Launchers whose agent has not connected.

    /// How long a launcher may take to end after the end of its input, after
    /// SIGTERM, and after SIGKILL. `srun` kills its task at SIGTERM: agents
    /// are asked to leave by their connection.
    std::chrono::milliseconds grace{2000};

    /// How long an agent may take to connect until what its launcher says is
    /// passed on: `srun` may wait for a node, `ssh` for another host.
    std::chrono::milliseconds patience{10'000};
  };

  /// `ec::spawn` if there is no thread or descriptor for it.
  static expected<host_launcher> start(launch_listener listener, limits x);
  static expected<host_launcher> start(launch_listener listener);

  host_launcher(host_launcher&&) noexcept;
  host_launcher& operator=(host_launcher&&) = delete;

  /// Ends all launchers, within three times the grace, and reports their ends.
  /// Nothing that they started is left in their sessions.
  ~host_launcher();

  /// Runs *command* for the launch of this number, which may follow: what it
  /// starts waits for its input meanwhile. The listener learns nothing of it.
  void prepare(std::uint64_t launch, std::vector<std::string> command,
               std::optional<std::vector<std::string>> environment = {});

  /// Runs *command*, whose first word is searched for in PATH, and writes
  /// *input* to it. If one was prepared for this launch and has not ended,
  /// that gets the *input* instead. Numbers of launches are the caller's, and
  /// unique. Without *environment* it has the variables of this process.
  void launch(std::uint64_t launch, std::vector<std::string> command,
              std::string input,
              std::optional<std::vector<std::string>> environment = {});

  /// The agent has connected: another launcher may start.
  void arrived(std::uint64_t launch);

  /// Ends the launcher; does nothing if it has ended.
  void end(std::uint64_t launch);

private:
  class worker;

  explicit host_launcher(std::unique_ptr<worker> x);

  std::unique_ptr<worker> worker_;
};

} // namespace troupe::internal
