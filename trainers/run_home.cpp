#include "troupe/trainers/run_home.hpp"

#include <fcntl.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// What an actor system cannot be without: CAF ends the program if there is no
/// thread for its scheduler, clock, pool or network.
constexpr std::size_t system_threads = 6;

/// The same of descriptors, for the scheduler's and the network's events.
constexpr std::size_t system_descriptors = 6;

/// Opens *count* descriptors and closes them: `ec::spawn` if this process may
/// not have so many more.
expected<void> expect_descriptors(std::size_t count) {
  std::vector<unique_fd> all;
  while (all.size() < count) {
    unique_fd x{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!x)
      return system_failure(
        ec::spawn,
        concat("the run needs ", count,
               " more file descriptors, but this process may open only ",
               all.size()));
    all.push_back(std::move(x));
  }
  return {};
}

} // namespace

expected<std::unique_ptr<run_home>> run_home::make(caf::actor_system* shared,
                                                   bool lends_thread) {
  TROUPE_TRY_VOID(expect_threads(system_threads + (lends_thread ? 1 : 0)));
  TROUPE_TRY_VOID(expect_descriptors(system_descriptors));
  register_messages();
  return std::unique_ptr<run_home>{new run_home{shared, lends_thread}};
}

run_home::run_home(caf::actor_system* shared, bool lends_thread)
  : system_(shared) {
  if (system_)
    return;
  config_ = std::make_unique<system_config>();
  if (lends_thread)
    config_->with_own_network_thread();
  own_ = std::make_unique<caf::actor_system>(*config_);
  system_ = own_.get();
  if (lends_thread)
    network_ = std::make_unique<network_thread>(*own_);
}

run_home::~run_home() {
  if (network_)
    own_->await_all_actors_done(); // on that thread
}

void run_home::keep() {
  (void) network_.release();
  (void) own_.release();
  (void) config_.release();
}

} // namespace troupe::internal
