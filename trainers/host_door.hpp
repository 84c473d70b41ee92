#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

class private_endpoint;

/// How a driver lets the agents of other hosts in: certificates of this start
/// of the run, the door, and the file with the agents' ticket.
class host_door {
public:
  using note_function = std::function<void(std::string)>;
  using time_function = std::function<std::chrono::steady_clock::time_point()>;

  /// Opens a port that is free, for certificates of this start of the run; or
  /// the port of the driver's ticket in *tickets*, see `read_ticket_of`, unless
  /// that is empty. A connection that breaks because nothing comes any more is
  /// resumed for up to *lost_after* (`scaling_config`). *note* gets a line
  /// about each connection that was refused; *now* dates those that come before
  /// `admit`, of which the latest *most_early* are kept. `ec::unsupported` if
  /// this build has no OpenSSL.
  static expected<std::unique_ptr<host_door>>
  open(const std::string& run_id, const fs::path& tickets,
       std::chrono::milliseconds lost_after, note_function note,
       time_function now = std::chrono::steady_clock::now,
       std::size_t most_early = 1024);

  /// Whether `admit` may write the ticket to *path*: there is no other file.
  static expected<bool> has_place_for_ticket(const fs::path& path);

  host_door(const host_door&) = delete;
  host_door& operator=(const host_door&) = delete;

  /// Closes the port and removes the ticket. Connections stay.
  ~host_door();

  /// Where agents connect, for messages.
  const std::string& address() const noexcept;

  /// What agents need to connect. Has a key.
  std::string ticket_text() const;

  /// From now on hands the connections of agents to *endpoint*, which outlives
  /// this. Writes their ticket to the file *ticket*, unless that is empty.
  expected<void> admit(private_endpoint& endpoint, const fs::path& ticket);

  /// The run is over: lets agents read that and leave, also those whose
  /// connection breaks at this moment. After *limit* the connections that are
  /// left are closed: an agent may be frozen, and an actor system waits for its
  /// connections when it ends.
  void end_connections(std::chrono::milliseconds limit);

private:
  class receiver;
  struct parts;

  explicit host_door(std::unique_ptr<parts> x);

  std::unique_ptr<parts> parts_;
};

} // namespace troupe::internal
