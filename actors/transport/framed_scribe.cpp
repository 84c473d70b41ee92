#include "troupe/actors/transport/framed_scribe.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <poll.h>

#include "troupe/actors/transport/resumable_link.hpp"

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
  : scribe(caf::io::network::conn_hdl_from_socket(link->socket())), loop_(loop),
    link_(std::move(link)),
    stream_(std::make_shared<stream>(loop, link_->release_socket(), *this)),
    first_stream_(stream_), guard_(side), on_refusal_(std::move(on_refusal)) {
  if (auto x = link_->resumable())
    serve(*x);
}

framed_scribe::~framed_scribe() {
  if (whereabouts_) {
    std::lock_guard guard{whereabouts_->mutex};
    whereabouts_->scribe = nullptr;
  }
  link_.reset(); // Before a stream closes its socket.
}

void framed_scribe::configure_read(caf::io::receive_policy::config config) {
  // BASP asks for exact sizes only.
  wanted_ = config.second;
  stream_->start();
}

void framed_scribe::ack_writes(bool enable) {
  stream_->ack_writes(enable);
}

void framed_scribe::graceful_shutdown() {
  auto guard = caf::intrusive_ptr{this};
  if (auto x = link_->resumable(); x && sent_ < outgoing_.size()) {
    x->lift_limit();
    stream_->flush();
  }
  stream_->graceful_shutdown();
  detach(&loop_, false);
  // The event loop ends after its last socket, and must not wait for a timer.
  if (auto x = link_->resumable(); x && x->is_broken()) {
    stream_->leave_loop();
    stream_->release_unless_registered(operation::read);
  }
}

void framed_scribe::flush() {
  stream_->flush();
}

void framed_scribe::close() {
  if (detached())
    return;
  if (auto x = link_->resumable()) {
    x->finish();        // Else the other side would try to resume it.
    x->resume(nullptr); // Its link must not outlive this.
  }
  stream_->close();
}

void framed_scribe::add_to_loop() {
  stream_->start();
}

void framed_scribe::remove_from_loop() {
  stream_->passivate();
  stream_->release_unless_registered(operation::read);
}

void framed_scribe::serve(resumable_link& link) {
  whereabouts_ = std::make_shared<whereabouts>();
  whereabouts_->scribe = this;
  auto bring = [&loop = loop_,
                place = whereabouts_](std::unique_ptr<byte_link> next) {
    auto shared = std::make_shared<std::unique_ptr<byte_link>>(std::move(next));
    loop.post([place, shared] {
      caf::intrusive_ptr<framed_scribe> self;
      {
        // While it is attached, the broker keeps it alive.
        std::lock_guard guard{place->mutex};
        if (place->scribe != nullptr && !place->scribe->detached())
          self = caf::intrusive_ptr{place->scribe};
      }
      if (self)
        self->resume(std::move(*shared));
    });
  };
  link.next().serve(std::move(bring));
}

void framed_scribe::resume(std::unique_ptr<byte_link> next) {
  if (stream_->is_shutting_down()
      || !link_->resumable()->resume(std::move(next)))
    stream_->close();
  else
    change_stream();
}

bool framed_scribe::outlives_break() {
  auto x = link_->resumable();
  if (!x || detached() || stream_->is_shutting_down() || !x->wait_for_next())
    return false;
  change_stream();
  return true;
}

void framed_scribe::change_stream() {
  auto former = std::exchange(
    stream_, std::make_shared<stream>(loop_, link_->release_socket(), *this));
  former->leave_loop();
  former->release_unless_registered(operation::read);
  // The event loop may know it until the next round.
  loop_.post([this, guard = caf::intrusive_ptr{this}, former] {
    loop_.post([guard, former] {});
  });
  stream_->start();
  stream_->flush();
}

bool framed_scribe::send() {
  while (sent_ < outgoing_.size() || link_->has_unsent()) {
    auto size = link_->send(std::as_bytes(std::span{outgoing_}).subspan(sent_));
    if (!size)
      return false;
    if (*size == 0)
      break;
    sent_ += *size;
  }
  if (sent_ == outgoing_.size()) {
    drop(outgoing_);
    sent_ = 0;
  } else if (sent_ > outgoing_.size() / 2) {
    outgoing_.erase(outgoing_.begin(),
                    outgoing_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return true;
}

bool framed_scribe::accept(std::span<const std::byte> bytes) {
  auto& buffer = incoming_;
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
    if (!consume(&loop_, buffer.data(), buffer.size()))
      return false;
    drop(buffer);
  }
  return true;
}

bool framed_scribe::check_header() {
  auto header = std::span<const std::byte, frame_guard::header_size>{
    reinterpret_cast<const std::byte*>(incoming_.data()),
    frame_guard::header_size};
  announced_ = frame_guard::payload_length(header);
  auto reason = guard_.check(header);
  if (!reason)
    return true;
  if (on_refusal_)
    on_refusal_("the connection is closed because of " + *reason);
  io_failure(&loop_, operation::read);
  return false;
}

// -- stream -------------------------------------------------------------------

void framed_scribe::stream::start() {
  if (!reader_) {
    reader_ = caf::intrusive_ptr{&owner_};
    activate();
    // Of what came with the end of a handshake, the socket shows nothing.
    if (owner_.link_->holds_data())
      read_later();
  }
}

void framed_scribe::stream::handle_event(operation op) {
  if (!is_current())
    return;
  switch (op) {
    case operation::read:
      read();
      break;
    case operation::write:
      if (!owner_.send())
        fail(operation::write);
      else if (!wants_room())
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
    owner_.link_->finish();
}

void framed_scribe::stream::read() {
  static thread_local std::array<std::byte, read_size> buffer;
  auto& link = *owner_.link_;
  for (int i = 0; i < max_consecutive_reads; ++i) {
    auto size = link.receive(buffer);
    if (!size)
      return fail(operation::read);
    if (!state_.writing && wants_room())
      wait_for_room();
    if (*size == 0)
      return;
    if (!owner_.accept({buffer.data(), *size}))
      return passivate();
    if (!is_current())
      return;
    // Fewer bytes than requested: that was all. The event loop reports more.
    if (*size < buffer.size() && !link.holds_data())
      return;
  }
  if (link.holds_data())
    read_later();
}

void framed_scribe::stream::read_later() {
  backend().post([this, guard = caf::intrusive_ptr{&owner_}] {
    if (reader_ && is_current() && !owner_.detached())
      read();
  });
}

void framed_scribe::stream::flush() {
  if (state_.writing)
    return;
  // An error is left to the event loop, because the broker is still busy.
  if (!owner_.send() || wants_room())
    wait_for_room();
}

bool framed_scribe::stream::wants_room() const {
  auto& link = *owner_.link_;
  return link.has_unsent() || (!owner_.outgoing_.empty() && link.takes_data());
}

void framed_scribe::stream::wait_for_room() {
  state_.writing = true;
  writer_ = caf::intrusive_ptr{&owner_};
  backend().add(operation::write, fd(), this);
}

void framed_scribe::stream::stop_waiting() {
  state_.writing = false;
  backend().del(operation::write, fd(), this);
  if (state_.shutting_down)
    owner_.link_->finish();
}

void framed_scribe::stream::fail(operation op) {
  auto guard = caf::intrusive_ptr{&owner_};
  if (owner_.outlives_break())
    return;
  owner_.io_failure(&backend(), op);
  leave_loop();
}

void framed_scribe::stream::leave_loop() {
  passivate();
  if (state_.writing) {
    state_.writing = false;
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
