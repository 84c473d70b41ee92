#include "troupe/trainers/ring/ring_greeting.hpp"

#include <algorithm>
#include <string_view>

#include <sys/socket.h>

#include "troupe/runtime/process/internet_socket.hpp"

namespace troupe::internal {

namespace {

using std::chrono::seconds;

/// The limit of a connection without an answer. More than a day does not fit
/// into the kernel's options.
constexpr seconds least_silence{10};
constexpr seconds longest_silence = std::chrono::hours{24};

/// Of which the kernel counts 127.
constexpr int most_ring_probes = 126;

/// For data that may wait for minutes until a slow host takes it: such a host
/// acknowledges, but its window stays closed, which TCP_USER_TIMEOUT would
/// count as dead. So each side probes the connection from which it receives.
void prepare_for_data(int socket, std::chrono::milliseconds lost_after) {
  auto limit =
    static_cast<int>(std::clamp(std::chrono::ceil<seconds>(lost_after),
                                least_silence, longest_silence)
                       .count());
  auto interval = (limit + most_ring_probes - 1) / most_ring_probes;
  // The latest answer may be as old as an interval when the network fails, and
  // a probe is to follow if that is over shortly before the limit.
  watch_connection(socket, {.interval_s = interval,
                            .probes = (limit + interval - 1) / interval + 1});
}

} // namespace

ring_greeting greeting_of(const std::string& token, std::size_t index) {
  ring_greeting result;
  std::string_view{"troupe ring 1"}.copy(result.magic.data(),
                                         result.magic.size());
  token.copy(result.token.data(), result.token.size());
  result.index = index;
  return result;
}

bool greeted_connection::is_silent() noexcept {
  std::byte next;
  if (!has_spoken_)
    has_spoken_ = ::recv(socket(), &next, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  return !has_spoken_;
}

bool greeted_connection::advance() {
  is_silent(); // What it has said is read now.
  if (handshake_ && !shake_hands())
    return false;
  while (link_ && left_ != 0) {
    auto moved = sends_ ? send() : receive();
    if (!moved) {
      problem = "it closed the connection";
      return false;
    }
    if (*moved == 0)
      break;
    done_ += *moved;
    if (done_ < sizeof(ring_greeting))
      continue;
    if (!sends_ && !(got_ == wanted_)) {
      problem = "it is not of this ring";
      return false;
    }
    sends_ = !sends_;
    done_ = 0;
    --left_;
  }
  return true;
}

pollfd greeted_connection::wait() const noexcept {
  if (handshake_)
    return {socket(), events_, 0};
  return {socket(), static_cast<short>(sends_ ? POLLOUT : POLLIN), 0};
}

std::unique_ptr<byte_link>
greeted_connection::take(std::chrono::milliseconds lost_after) {
  prepare_for_data(link_->socket(), lost_after);
  return std::move(link_);
}

bool greeted_connection::shake_hands() {
  using progress = link_handshake::progress;
  switch (handshake_->advance()) {
    case progress::failed:
      problem = handshake_->problem();
      return false;
    case progress::wants_write:
      events_ = POLLOUT;
      return true;
    case progress::wants_read:
      events_ = POLLIN;
      return true;
    case progress::done:
      link_ = handshake_->take();
      handshake_.reset();
      return true;
  }
  return false;
}

std::optional<std::size_t> greeted_connection::send() {
  auto* from = reinterpret_cast<const std::byte*>(&sent_);
  return link_->send({from + done_, sizeof(sent_) - done_});
}

std::optional<std::size_t> greeted_connection::receive() {
  auto* to = reinterpret_cast<std::byte*>(&got_);
  return link_->receive({to + done_, sizeof(got_) - done_});
}

} // namespace troupe::internal
