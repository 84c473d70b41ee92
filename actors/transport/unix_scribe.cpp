#include "troupe/actors/transport/unix_scribe.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace troupe::internal {

using caf::io::network::operation;

namespace {

constexpr std::size_t read_size = 64 * 1024;

/// Lets other connections proceed while one sends continuously.
constexpr int max_consecutive_reads = 16;

/// A buffer that grew beyond this is freed once it is empty. Reports of 10,000
/// metrics stay below: to grow a buffer for each costs more than to send it.
constexpr std::size_t kept_capacity = 1024 * 1024;

void drop(caf::byte_buffer& buffer) {
  buffer.clear();
  if (buffer.capacity() > kept_capacity)
    caf::byte_buffer{}.swap(buffer);
}

} // namespace

// -- scribe -------------------------------------------------------------------

unix_scribe::unix_scribe(multiplexer& loop, int socket, frame_guard::side side,
                         refusal_handler on_refusal)
  : scribe(caf::io::network::conn_hdl_from_socket(socket)),
    stream_(loop, socket, *this), guard_(side),
    on_refusal_(std::move(on_refusal)) {}

void unix_scribe::configure_read(caf::io::receive_policy::config config) {
  // BASP asks for exact sizes only.
  wanted_ = config.second;
  stream_.start();
}

void unix_scribe::ack_writes(bool enable) {
  stream_.ack_writes(enable);
}

void unix_scribe::graceful_shutdown() {
  auto guard = retain(this);
  stream_.graceful_shutdown();
  detach(&stream_.backend(), false);
}

void unix_scribe::flush() {
  stream_.flush();
}

void unix_scribe::add_to_loop() {
  stream_.start();
}

void unix_scribe::remove_from_loop() {
  stream_.passivate();
  stream_.release_unless_registered(operation::read);
}

bool unix_scribe::accept(std::span<const std::byte> bytes) {
  auto& buffer = stream_.incoming;
  while (!bytes.empty()) {
    auto part = bytes.first(std::min(wanted_ - buffer.size(), bytes.size()));
    auto first =
      reinterpret_cast<const caf::byte_buffer::value_type*>(part.data());
    buffer.insert(buffer.end(), first, first + part.size());
    bytes = bytes.subspan(part.size());
    if (buffer.size() < wanted_)
      return true;
    if (in_header_ && !check_header())
      return false;
    // The next part is a payload only if this one announced it.
    in_header_ = !in_header_ || announced_ == 0;
    if (!consume(&stream_.backend(), buffer.data(), buffer.size()))
      return false;
    drop(buffer);
  }
  return true;
}

bool unix_scribe::check_header() {
  auto header = std::span<const std::byte, frame_guard::header_size>{
    reinterpret_cast<const std::byte*>(stream_.incoming.data()),
    frame_guard::header_size};
  announced_ = frame_guard::payload_length(header);
  auto reason = guard_.check(header);
  if (!reason)
    return true;
  if (on_refusal_)
    on_refusal_("the connection is closed because of " + *reason);
  io_failure(&stream_.backend(), operation::read);
  return false;
}

// -- stream -------------------------------------------------------------------

unix_scribe::stream::stream(multiplexer& loop, int socket, unix_scribe& owner)
  : event_handler(loop, socket), owner_(owner) {}

void unix_scribe::stream::start() {
  if (!reader_) {
    reader_ = retain(&owner_);
    activate();
  }
}

void unix_scribe::stream::handle_event(operation op) {
  switch (op) {
    case operation::read:
      read();
      break;
    case operation::write:
      if (!send())
        fail(operation::write);
      else if (outgoing.empty())
        stop_waiting();
      break;
    case operation::propagate_error:
      fail(operation::read);
      break;
  }
}

void unix_scribe::stream::removed_from_loop(operation op) {
  // The last act: it may destroy the scribe and this stream with it.
  auto last = std::move(op == operation::read ? reader_ : writer_);
}

void unix_scribe::stream::graceful_shutdown() {
  if (state_.shutting_down)
    return;
  state_.shutting_down = true;
  // Otherwise done as soon as all is sent.
  if (!state_.writing)
    ::shutdown(fd(), SHUT_WR);
}

void unix_scribe::stream::read() {
  static thread_local std::array<std::byte, read_size> buffer;
  for (int i = 0; i < max_consecutive_reads; ++i) {
    auto size = ::recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (size <= 0)
      return fail(operation::read);
    if (!owner_.accept({buffer.data(), static_cast<std::size_t>(size)}))
      return passivate();
    // Fewer bytes than requested: that was all. The event loop reports more.
    if (static_cast<std::size_t>(size) < buffer.size())
      return;
  }
}

void unix_scribe::stream::flush() {
  if (state_.writing || outgoing.empty())
    return;
  // An error is left to the event loop, because the broker is still busy.
  if (!send() || !outgoing.empty())
    wait_for_room();
}

bool unix_scribe::stream::send() {
  while (sent_ < outgoing.size()) {
    auto size = ::send(fd(), outgoing.data() + sent_, outgoing.size() - sent_,
                       MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR)
      continue;
    if (size < 0 && errno != EAGAIN)
      return false;
    if (size < 0)
      break;
    sent_ += static_cast<std::size_t>(size);
  }
  if (sent_ == outgoing.size()) {
    drop(outgoing);
    sent_ = 0;
  } else if (sent_ > outgoing.size() / 2) {
    outgoing.erase(outgoing.begin(),
                   outgoing.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return true;
}

void unix_scribe::stream::wait_for_room() {
  state_.writing = true;
  writer_ = retain(&owner_);
  backend().add(operation::write, fd(), this);
}

void unix_scribe::stream::stop_waiting() {
  state_.writing = false;
  backend().del(operation::write, fd(), this);
  if (state_.shutting_down)
    ::shutdown(fd(), SHUT_WR);
}

void unix_scribe::stream::fail(operation op) {
  auto guard = retain(&owner_);
  owner_.io_failure(&backend(), op);
  passivate();
  if (state_.writing) {
    backend().del(operation::write, fd(), this);
    release_unless_registered(operation::write);
  }
}

void unix_scribe::stream::release_unless_registered(operation op) {
  // The event loop reports a removal only if the socket was registered; one
  // that opens and closes in one round would keep itself alive for ever.
  if ((eventbf() & (op == operation::read ? POLLIN : POLLOUT)) == 0)
    removed_from_loop(op);
}

} // namespace troupe::internal
