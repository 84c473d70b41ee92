#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "troupe/actors/door/door.hpp"
#include "troupe/actors/door/ticket.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

struct dial_args {
  /// For each try of an address: its name, the connection, the handshake and
  /// the door's answer.
  std::chrono::milliseconds per_address{3000};

  /// Between two tries of an address; doubles up to `longest_pause`.
  std::chrono::milliseconds first_pause{100};
  std::chrono::milliseconds longest_pause{2000};

  /// For all of it. Long, because an agent may start before its driver, and
  /// before its driver's name can be resolved. After a standstill of this
  /// process, which may have taken all of it, `per_address` is left at least.
  std::chrono::milliseconds limit{120'000};

  /// Ends the call as soon as this descriptor is readable; -1: none.
  int stop = -1;

  /// The link that the connection continues; unset: it begins another one.
  std::optional<link_id> resumes;

  link_limits link;
};

/// A connection that the driver has accepted.
struct dialed_channel {
  std::unique_ptr<tls_channel> channel;
  /// A new one for each try: the driver may have accepted one that broke before
  /// its answer came.
  link_id link{};
  std::string address; ///< The one of the ticket that led there.
  /// Its two ends, as numbers.
  std::string own_end;
  std::string other_end;
};

/// Connects an agent to the door of its driver. Tries all addresses of *to* at
/// the same time, repeatedly; the first whose certificate is right wins,
/// and the others are dropped before the door takes them for an agent. Blocks.
///
/// Fails with
/// - `ec::timeout` after the limit;
/// - `ec::protocol` if the driver refuses the ticket's certificate, or the link
///   that is to be resumed: no further try would help. So too if a link is to
///   be resumed and no process listens any more: the driver has ended;
/// - `ec::stopped` if asked to stop;
/// - `ec::corrupt` if the ticket's certificates cannot be used.
/// After the limit or a stop, the error has a line per address with the latest
/// cause.
expected<dialed_channel> dial(const ticket& to, const dial_args& args = {});

} // namespace troupe::internal
