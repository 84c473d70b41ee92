#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/event_handler.hpp>
#include <caf/io/scribe.hpp>

#include "troupe/actors/compat/event_loop.hpp"
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
class framed_scribe : public caf::io::scribe {
public:
  using multiplexer = caf::io::network::default_multiplexer;

  /// *link* is connected.
  framed_scribe(multiplexer& loop, std::unique_ptr<byte_link> link,
                frame_guard::side side, refusal_handler on_refusal);

  void configure_read(caf::io::receive_policy::config config) override;
  void ack_writes(bool enable) override;
  caf::byte_buffer& wr_buf() override { return stream_.outgoing; }
  caf::byte_buffer& rd_buf() override { return stream_.incoming; }
  void graceful_shutdown() override;
  void flush() override;

  /// Closes the connection as if it were broken. On the network thread.
  void close();

  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return 0; }
  void add_to_loop() override;
  void remove_from_loop() override;

private:
  /// The link's socket in CAF's event loop.
  class stream : public caf::io::network::event_handler {
  public:
    stream(multiplexer& loop, std::unique_ptr<byte_link> link,
           framed_scribe& owner);

    void handle_event(caf::io::network::operation op) override;
    void removed_from_loop(caf::io::network::operation op) override;
    void graceful_shutdown() override;

    void start();

    void close() { fail(caf::io::network::operation::read); }

    /// Sends as much as the link takes now, the rest when it has room again.
    void flush();

    /// Releases the reference that keeps the owner alive for *op* if the event
    /// loop will not.
    void release_unless_registered(caf::io::network::operation op);

    caf::byte_buffer incoming; // the frame part that is being collected
    caf::byte_buffer outgoing;

  private:
    void read();

    /// Lets other connections proceed, and then reads what the link still
    /// holds.
    void read_later();

    /// Sends what the link takes now. False: the connection is broken.
    bool send();

    void wait_for_room();
    void stop_waiting();
    void fail(caf::io::network::operation op);

    framed_scribe& owner_;
    std::unique_ptr<byte_link> link_;
    std::size_t sent_ = 0; // of outgoing
    // What keeps the owner alive while the event loop knows this stream.
    caf::io::scribe_ptr reader_;
    caf::io::scribe_ptr writer_;
  };

  /// Feeds *bytes* to the broker, frame part by frame part. False: closed.
  bool accept(std::span<const std::byte> bytes);

  /// Whether the header that was just collected is valid.
  bool check_header();

  stream stream_;
  frame_guard guard_;
  refusal_handler on_refusal_;
  std::size_t wanted_ = frame_guard::header_size;
  std::uint32_t announced_ = 0; // payload of the latest header
  bool in_header_ = true;
};

} // namespace troupe::internal
