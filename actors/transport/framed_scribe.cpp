#include "troupe/actors/transport/framed_scribe.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <poll.h>

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

framed_scribe::framed_scribe(multiplexer& loop, std::unique_ptr<byte_link> link,
                             frame_guard::side side, refusal_handler on_refusal)
  : scribe(caf::io::network::conn_hdl_from_socket(link->socket())),
    stream_(loop, std::move(link), *this), guard_(side),
    on_refusal_(std::move(on_refusal)) {}

void framed_scribe::configure_read(caf::io::receive_policy::config config) {
  // BASP asks for exact sizes only.
  wanted_ = config.second;
  stream_.start();
}

void framed_scribe::ack_writes(bool enable) {
  stream_.ack_writes(enable);
}

void framed_scribe::graceful_shutdown() {
  auto guard = retain(this);
  stream_.graceful_shutdown();
  detach(&stream_.backend(), false);
}

void framed_scribe::flush() {
  stream_.flush();
}

void framed_scribe::close() {
  if (!detached())
    stream_.close();
}

void framed_scribe::add_to_loop() {
  stream_.start();
}

void framed_scribe::remove_from_loop() {
  stream_.passivate();
  stream_.release_unless_registered(operation::read);
}

bool framed_scribe::accept(std::span<const std::byte> bytes) {
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

bool framed_scribe::check_header() {
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

framed_scribe::stream::stream(multiplexer& loop,
                              std::unique_ptr<byte_link> link,
                              framed_scribe& owner)
  : event_handler(loop, link->release_socket()), owner_(owner),
    link_(std::move(link)) {}

void framed_scribe::stream::start() {
  if (!reader_) {
    reader_ = retain(&owner_);
    activate();
    // Of what came with the end of a handshake, the socket shows nothing.
    if (link_->holds_data())
      read_later();
  }
}

void framed_scribe::stream::handle_event(operation op) {
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

void framed_scribe::stream::removed_from_loop(operation op) {
  // The last act: it may destroy the scribe and this stream with it.
  auto last = std::move(op == operation::read ? reader_ : writer_);
}

void framed_scribe::stream::graceful_shutdown() {
  if (state_.shutting_down)
    return;
  state_.shutting_down = true;
  // Otherwise done as soon as all is sent.
  if (!state_.writing)
    link_->finish();
}

void framed_scribe::stream::read() {
  static thread_local std::array<std::byte, read_size> buffer;
  for (int i = 0; i < max_consecutive_reads; ++i) {
    auto size = link_->receive(buffer);
    if (!size)
      return fail(operation::read);
    if (*size == 0)
      return;
    if (!owner_.accept({buffer.data(), *size}))
      return passivate();
    // Fewer bytes than requested: that was all. The event loop reports more.
    if (*size < buffer.size() && !link_->holds_data())
      return;
  }
  if (link_->holds_data())
    read_later();
}

void framed_scribe::stream::read_later() {
  backend().post([this, guard = retain(&owner_)] {
    if (reader_ && !owner_.detached())
      read();
  });
}

void framed_scribe::stream::flush() {
  if (state_.writing || outgoing.empty())
    return;
  // An error is left to the event loop, because the broker is still busy.
  if (!send() || !outgoing.empty())
    wait_for_room();
}

bool framed_scribe::stream::send() {
  while (sent_ < outgoing.size()) {
    auto size = link_->send(std::as_bytes(std::span{outgoing}).subspan(sent_));
    if (!size)
      return false;
    if (*size == 0)
      break;
    sent_ += *size;
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

void framed_scribe::stream::wait_for_room() {
  state_.writing = true;
  writer_ = retain(&owner_);
  backend().add(operation::write, fd(), this);
}

void framed_scribe::stream::stop_waiting() {
  state_.writing = false;
  backend().del(operation::write, fd(), this);
  if (state_.shutting_down)
    link_->finish();
}

void framed_scribe::stream::fail(operation op) {
  auto guard = retain(&owner_);
  owner_.io_failure(&backend(), op);
  passivate();
  if (state_.writing) {
    backend().del(operation::write, fd(), this);
    release_unless_registered(operation::write);
  }
}

void framed_scribe::stream::release_unless_registered(operation op) {
  // The event loop reports a removal only if the socket was registered; one
  // that opens and closes in one round would keep itself alive for ever.
  if ((eventbf() & (op == operation::read ? POLLIN : POLLOUT)) == 0)
    removed_from_loop(op);
}

} // namespace troupe::internal
