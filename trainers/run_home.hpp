#pragma once

#include <memory>

#include <caf/actor_system.hpp>

#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Where the actors of one or more runs live: a system of their own, or that of
/// the user.
class run_home {
public:
  /// Without *shared*, in a system of its own; a caller that *lends_thread* to
  /// the run can run the actors while it waits for them. `ec::spawn`: this
  /// process may not have the threads or descriptors without which CAF ends the
  /// program.
  static expected<std::unique_ptr<run_home>> make(caf::actor_system* shared,
                                                  bool lends_thread);

  ~run_home();

  run_home(const run_home&) = delete;
  run_home& operator=(const run_home&) = delete;

  caf::actor_system& system() { return *system_; }

  /// The network thread of the run's own system, if its caller lends its
  /// thread; nullptr otherwise.
  network_thread* network() { return network_.get(); }

  /// A thread was left behind that uses the system: ending that would wait for
  /// it forever.
  void keep();

private:
  run_home(caf::actor_system* shared, bool lends_thread);

  std::unique_ptr<system_config> config_;
  std::unique_ptr<caf::actor_system> own_;
  std::unique_ptr<network_thread> network_;
  caf::actor_system* system_;
};

} // namespace troupe::internal
