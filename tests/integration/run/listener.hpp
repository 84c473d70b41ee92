#pragma once

#include <sys/types.h>

#include <string>

#include <troupe/actors.hpp>

namespace troupe::internal::test {

/// Writes a line into *file* for each event but reports and failures. Ends
/// *run*, if it is valid, with the fifth report that it gets.
run_observer_actor::behavior_type observer(run_observer_actor::pointer self,
                                           const std::string& file,
                                           const run_control_actor& run);

/// A process of its own, no child of a run, that publishes a callback actor at
/// *socket* and writes a line per event into *file*. By its *deed* the actor is
/// an `observer` ("observe"), or ends the process at a report ("die").
class listener {
public:
  listener(std::string socket, std::string file, std::string deed = "listen");
  ~listener();

  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;

  /// Whether it has published its actor.
  bool is_ready() const { return ready_; }

  /// Waits until it has ended, as it does after `after_run`; its exit code.
  int wait();

private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

/// What such a process does, from its arguments to its exit code. A byte on its
/// standard output says that the actor is published.
int be_listener(const std::string& socket, const std::string& file,
                const std::string& deed);

} // namespace troupe::internal::test
