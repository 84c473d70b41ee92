#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "troupe/actors/door/dial.hpp"
#include "troupe/actors/transport/resumable_link.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// How long an agent looks for its driver.
inline constexpr auto search_patience = std::chrono::seconds{120};

/// The same if a driver has launched it, which listens already and launches it
/// again: within the driver's `join_timeout`, so that the agent can still say
/// where it got no answer.
inline constexpr auto launched_patience = std::chrono::seconds{20};

/// How long it waits for a ticket on standard input: a person may need a moment
/// to paste it, and a driver to open its run. If that takes a driver longer, it
/// launches another agent.
inline constexpr auto ticket_patience = std::chrono::seconds{60};

/// The driver that a ticket led to.
struct found_driver {
  ticket own;
  dialed_channel channel;
};

/// How long the ticket of a file is tried before it is read again.
std::chrono::milliseconds ticket_age_of(const ticket& x);

/// Calls the door of the driver that the ticket in the file or folder *path*
/// names, or the ticket *text*; if both are empty, the ticket comes on standard
/// input. Ends with `ec::stopped` as soon as the descriptor *stop* is readable,
/// else fails as `dial`: with `ec::timeout` after about *patience*, sooner with
/// a *text*.
expected<found_driver> find_driver(const fs::path& path, std::string_view text,
                                   int stop,
                                   std::chrono::milliseconds patience);

/// Dials the driver again when the connection to it breaks.
class driver_redialer : public std::enable_shared_from_this<driver_redialer> {
public:
  /// Takes the ticket of *x*.
  explicit driver_redialer(found_driver& x);

  /// The link over *first*, the connection that was found. Call it once.
  std::unique_ptr<byte_link> make_link(std::unique_ptr<tls_channel> first);

  /// From the next break on, dials until nothing was received for so long, but
  /// not for less than by default.
  void wait_for(std::chrono::milliseconds lost_after);

  /// Ends all dialing. The link may still be in use.
  void stop();

private:
  void dial_again();

  ticket to_;
  link_id link_;
  std::shared_ptr<link_switch> next_ = std::make_shared<link_switch>();
  wake_event stop_;
  std::mutex mutex_; // of the next two
  bool is_over_ = false;
  std::thread thread_;
};

} // namespace troupe::internal
