#include "troupe/actors/transport/connect.hpp"

#include <algorithm>

#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/transport/framed_scribe.hpp"
#include "troupe/actors/transport/publication.hpp"
#include "troupe/actors/transport/unix_endpoint.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// *closed* is the code for a connection that the other side closed.
error explain(const caf::error& reason, const std::string& where,
              std::chrono::milliseconds timeout, ec closed) {
  if (reason == caf::sec::request_timeout)
    return {ec::timeout,
            concat("no answer at ", where, " within ", duration_text(timeout))};
  if (reason == caf::sec::disconnect_during_handshake)
    return {closed, where + " was closed before an answer came"};
  return {ec::protocol,
          "no connection through " + where + ": " + caf::to_string(reason)};
}

/// Asks the other side of *link* for its actor; errors call the link *where*.
expected<remote_actor>
greet(caf::actor_system& system, const std::set<std::string>& interface,
      std::unique_ptr<byte_link> link, const std::string& where,
      std::chrono::milliseconds timeout, ec closed = ec::protocol) {
  auto& loop =
    static_cast<framed_scribe::multiplexer&>(system.middleman().backend());
  caf::io::scribe_ptr scribe = caf::make_counted<framed_scribe>(
    loop, std::move(link), frame_guard::side::client, refusal_handler{});
  expected<remote_actor> result;
  caf::scoped_actor self{system, true};
  request(self, broker_of(system), timeout, caf::connect_atom_v, scribe,
          std::uint16_t{0})
    .receive(
      [&](const caf::node_id&, caf::strong_actor_ptr& actor,
          std::set<std::string>& found) {
        if (actor && system.assignable(found, interface))
          result = remote_actor{std::move(actor), std::move(found)};
        else
          result =
            failure(ec::protocol, "the actor at " + where
                                    + " has another interface than expected");
      },
      [&](const caf::error& reason) {
        result = tl::unexpected{explain(reason, where, timeout, closed)};
        // A late answer must not leave an unused connection.
        loop.post([scribe] {
          if (!scribe->detached())
            scribe->io_failure(nullptr, caf::io::network::operation::read);
        });
      });
  return result;
}

} // namespace

expected<remote_actor> connect_actor(caf::actor_system& system,
                                     std::set<std::string> interface,
                                     const fs::path& path,
                                     std::chrono::milliseconds timeout) {
  TROUPE_TRY(auto socket, connect_to(path, timeout));
  return greet(system, interface,
               std::make_unique<socket_link>(std::move(socket)),
               "the socket " + path.string(), timeout);
}

expected<remote_actor> connect_actor(caf::actor_system& system,
                                     std::set<std::string> interface,
                                     unique_fd socket,
                                     std::chrono::milliseconds timeout) {
  return greet(system, interface,
               std::make_unique<socket_link>(std::move(socket)),
               "the other end of a private endpoint", timeout);
}

expected<remote_actor> connect_actor(caf::actor_system& system,
                                     std::set<std::string> interface,
                                     std::unique_ptr<byte_link> link,
                                     std::chrono::milliseconds timeout) {
  return greet(system, interface, std::move(link),
               "the other end of a connection", timeout, ec::stopped);
}

} // namespace troupe::internal
