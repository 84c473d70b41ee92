#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include <caf/intrusive_ptr.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/event_handler.hpp>
#include <caf/io/scribe.hpp>

#include "troupe/actors/transport/byte_link.hpp"
#include "troupe/actors/transport/frame_guard.hpp"
#include "troupe/actors/transport/publication.hpp"

namespace troupe::internal {

/// One BASP connection over a `byte_link`.
///
/// Differs from CAF's own in three ways: every frame passes a `frame_guard`;
/// memory grows with the received data, not with the announced size; a write is
/// sent at once and one read takes all available frames, which saves five of
/// eight system calls of a small message.
///
/// If its link is a `resumable_link`, CAF notices neither a break nor the next
/// connection.
class framed_scribe : public caf::io::scribe {
public:
  using multiplexer = caf::io::network::default_multiplexer;

  /// *link* is connected.
  framed_scribe(multiplexer& loop, std::unique_ptr<byte_link> link,
                frame_guard::side side, refusal_handler on_refusal);

  ~framed_scribe() override;

  void configure_read(caf::io::receive_policy::config config) override;
  void ack_writes(bool enable) override;
  caf::byte_buffer& wr_buf() override { return outgoing_; }
  caf::byte_buffer& rd_buf() override { return incoming_; }
  void graceful_shutdown() override;
  void flush() override;

  /// Ends the connection for good, without waiting. On the network thread.
  void close();

  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return 0; }
  void add_to_loop() override;
  void remove_from_loop() override;

private:
  /// A socket of the link in CAF's event loop.
  class stream : public caf::io::network::event_handler {
  public:
    stream(multiplexer& loop, int socket, framed_scribe& owner)
      : event_handler(loop, socket), owner_(owner) {}

    void handle_event(caf::io::network::operation op) override;
    void removed_from_loop(caf::io::network::operation op) override;
    void graceful_shutdown() override;

    void start();

    void close() { fail(caf::io::network::operation::read); }

    /// Sends as much as the link takes now, the rest when it has room again.
    void flush();

    /// Another stream takes its place, or none.
    void leave_loop();

    /// Releases the reference that keeps the owner alive for *op* if the event
    /// loop will not.
    void release_unless_registered(caf::io::network::operation op);

    bool is_shutting_down() const noexcept { return state_.shutting_down; }

  private:
    bool is_current() const noexcept { return owner_.stream_.get() == this; }

    void read();

    /// Lets other connections proceed, and then reads what the link still
    /// holds.
    void read_later();

    /// Whether something waits for room in the socket.
    bool wants_room() const;

    void wait_for_room();
    void stop_waiting();
    void fail(caf::io::network::operation op);

    framed_scribe& owner_;
    // What keeps the owner alive while the event loop knows this stream.
    caf::io::scribe_ptr reader_;
    caf::io::scribe_ptr writer_;
  };

  /// Where other threads find this scribe as long as it exists.
  struct whereabouts {
    std::mutex mutex;
    framed_scribe* scribe = nullptr;
  };

  /// Calls `resume` on the network thread with what *next* brings.
  void serve(resumable_link& link);

  /// The link has another connection; null: it is over.
  void resume(std::unique_ptr<byte_link> next);

  /// Whether the link lives although its connection is broken.
  bool outlives_break();

  /// Gives the link's present socket to the event loop.
  void change_stream();

  /// Sends what the link takes now. False: the connection is broken.
  bool send();

  /// Feeds *bytes* to the broker, frame part by frame part. False: closed.
  bool accept(std::span<const std::byte> bytes);

  /// Whether the header that was just collected is valid.
  bool check_header();

  multiplexer& loop_;
  std::unique_ptr<byte_link> link_;
  caf::byte_buffer incoming_; // the frame part that is being collected
  caf::byte_buffer outgoing_;
  std::size_t sent_ = 0; // of outgoing_
  std::shared_ptr<stream> stream_;
  /// Its open socket keeps the number that CAF knows this connection by.
  std::shared_ptr<stream> first_stream_;
  std::shared_ptr<whereabouts> whereabouts_;
  frame_guard guard_;
  refusal_handler on_refusal_;
  std::size_t wanted_ = frame_guard::header_size;
  std::uint32_t announced_ = 0; // payload of the latest header
  bool in_header_ = true;
};

} // namespace troupe::internal
