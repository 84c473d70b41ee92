#include "troupe/actors/transport/unix_doorman.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <caf/io/abstract_broker.hpp>

#include "troupe/actors/transport/unix_endpoint.hpp"
#include "troupe/actors/transport/unix_scribe.hpp"

namespace troupe {

unix_doorman::unix_doorman(multiplexer& loop, int socket, std::uint16_t slot,
                           door_ptr door)
  : doorman(caf::io::network::accept_hdl_from_socket(socket)),
    acceptor_(loop, socket), slot_(slot), door_(std::move(door)) {}

bool unix_doorman::new_connection() {
  auto socket = unique_fd{acceptor_.accepted_socket()};
  if (detached())
    return false;
  if (!is_own_peer(socket.get())) {
    ++door_->refused_peers;
    if (door_->on_refusal)
      door_->on_refusal("a connection of another user is refused");
    return true;
  }
  auto& loop = acceptor_.backend();
  auto scribe = caf::make_counted<unix_scribe>(
    loop, socket.release(), frame_guard::side::server, door_);
  auto handle = scribe->hdl();
  parent()->add_scribe(std::move(scribe));
  return doorman::new_connection(&loop, handle);
}

void unix_doorman::graceful_shutdown() {
  auto guard = caf::intrusive_ptr<unix_doorman>{this};
  acceptor_.graceful_shutdown();
  detach(&acceptor_.backend(), false);
}

void unix_doorman::launch() {
  acceptor_.start(this);
}

void unix_doorman::add_to_loop() {
  acceptor_.activate(this);
}

void unix_doorman::remove_from_loop() {
  acceptor_.passivate();
  // As for a scribe: nothing else releases a door that closes at once.
  if (acceptor_.eventbf() == 0)
    acceptor_.removed_from_loop(caf::io::network::operation::read);
}

unix_doorman::accept_policy::accept_policy()
  : reserve_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

bool unix_doorman::accept_policy::try_accept(int& result, int socket) {
  result = ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (result < 0 && (errno == EMFILE || errno == ENFILE)) {
    reserve_.reset();
    reserve_.reset(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC));
    reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  return result >= 0;
}

} // namespace troupe
