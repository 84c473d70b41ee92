#include "troupe/actors/transport/system_config.hpp"

#include "troupe/actors/compat/event_loop.hpp"

namespace troupe {

using namespace internal;

system_config::system_config(std::size_t scheduler_threads) {
  load_network(*this); // first: it declares its options
  // The default policy polls: 264 µs per round trip instead of 62, and busy
  // idle cores.
  set("caf.scheduler.policy", "sharing");
  set("caf.scheduler.max-threads", scheduler_threads);
  // A killed peer shows at once as a closed socket; the run itself watches for
  // hanging ones.
  set("caf.middleman.heartbeat-interval", caf::timespan{0});
  // Small messages are unpacked faster than they are passed to a worker.
  set("caf.middleman.workers", std::size_t{0});
  // Two threads less per process; nothing here connects over TCP.
  set("caf.middleman.attach-utility-actors", true);
  set("caf.logger.console.verbosity", "quiet");
  set("caf.logger.file.verbosity", "quiet");
}

system_config& system_config::with_own_network_thread() {
  shared_loop::prepare(*this);
  return *this;
}

} // namespace troupe
