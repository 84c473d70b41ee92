#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace troupe::internal {

/// What an agent tells its launcher when it ends.
enum class agent_exit : int {
  done = 0,       ///< The run has finished.
  try_again = 75, ///< The driver is lost, or the run is to be resumed, or this
                  ///< host has to leave.
  never = 78,     ///< Another start would fail alike.
};

/// How long an agent whose ticket is valid for all runs of a program looks for
/// the next one.
inline constexpr auto next_run_patience = std::chrono::seconds{120};

/// How an agent was started.
struct agent_orders {
  /// The file with its ticket, or its folder; empty: standard input.
  std::string ticket;
  std::string ticket_text;  ///< The ticket itself; empty: see above.
  std::uint64_t launch = 0; ///< As in `agent_facts`.
  /// It looks for a driver that may have ended, and says nothing if there is
  /// none: its caller starts it again.
  bool looks_again = false;
  /// Once a run has finished, it looks for another one with the same ticket for
  /// so long, and serves that, too. 0: it ends.
  std::chrono::milliseconds next_run{0};
};

/// How an agent ended.
struct agent_outcome {
  agent_exit code = agent_exit::done;
  bool has_to_leave = false; ///< A signal asked this process to end.
};

/// Has the ranks of this host for a driver elsewhere, until that ends. Call
/// after `init_spawner`. Prints a line on standard error unless all went well;
/// one that was started by hand also says what it waits for, and that it has
/// joined.
agent_outcome run_node_agent(const agent_orders& orders);

/// Prints what the agent of this host does.
inline void print_agent_note(const std::string& what) {
  std::fprintf(stderr, "troupe: the agent of this host %s\n", what.c_str());
}

inline void print_agent_end(const std::string& why) {
  print_agent_note("ends: " + why);
}

} // namespace troupe::internal
