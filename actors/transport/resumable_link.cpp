#include "troupe/actors/transport/resumable_link.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <endian.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

/// Precedes each record: how many bytes follow, and how many bytes its sender
/// has received. Big-endian, without padding.
constexpr std::size_t header_size = 12;

/// In place of a size: nothing more will be sent, and the link is over.
constexpr std::uint32_t last_record = std::numeric_limits<std::uint32_t>::max();

/// Bytes that a side sends before the other has confirmed them. With what
/// records and TLS add, less than the 64 KB that a kernel takes for a process
/// that does not read: the window of a side that is stopped stays open.
/// `TCP_USER_TIMEOUT` would take a closed one for a dead host.
constexpr std::size_t least_ahead = std::size_t{32} * 1024;

/// The same in long messages. It grows by half in each round trip: a kernel
/// gives a process room for twice what it has read in the last one.
constexpr std::size_t most_ahead = std::size_t{1024} * 1024;

constexpr std::size_t max_payload = least_ahead;

/// Received bytes that are not confirmed yet: the other side keeps them.
constexpr std::uint64_t max_silence = least_ahead / 2;

/// Each link has a buffer of this size, and a driver a link per host. OpenSSL
/// gives no more at once: a record of TLS.
constexpr std::size_t raw_read_size = std::size_t{16} * 1024;

/// A buffer that grew beyond this is freed once it is empty.
constexpr std::size_t max_idle_capacity = std::size_t{1024} * 1024;

void empty_buffer(std::vector<std::byte>& buffer) {
  buffer.clear();
  if (buffer.capacity() > max_idle_capacity)
    std::vector<std::byte>{}.swap(buffer);
}

void append(std::vector<std::byte>& to, const void* from, std::size_t size) {
  auto first = static_cast<const std::byte*>(from);
  to.insert(to.end(), first, first + size);
}

/// Has *timer* be readable after *limit*.
bool set_timer(int timer, std::chrono::milliseconds limit) {
  itimerspec when{};
  when.it_value.tv_sec = limit.count() / 1000;
  when.it_value.tv_nsec = limit.count() % 1000 * 1'000'000;
  return ::timerfd_settime(timer, 0, &when, nullptr) == 0;
}

/// Breaks the connection of *socket*, whose descriptor an event loop may keep
/// for a while. The other side must not take that for the end of this process,
/// which closes its connections in order.
void reset_connection(int socket) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  if (::connect(socket, &none, sizeof(none)) != 0) // It is not of TCP.
    ::shutdown(socket, SHUT_RDWR);
}

} // namespace

// -- switch -------------------------------------------------------------------

void link_switch::connect(std::unique_ptr<byte_link> next) {
  std::lock_guard guard{mutex_};
  if (handler_)
    handler_(std::move(next));
  else if (!is_served_)
    early_ = std::move(next);
}

void link_switch::serve(handler f) {
  std::lock_guard guard{mutex_};
  handler_ = std::move(f);
  is_served_ = true;
  auto early = std::exchange(early_, std::nullopt);
  if (early && handler_)
    handler_(std::move(*early));
}

// -- link ---------------------------------------------------------------------

resumable_link::resumable_link(std::unique_ptr<byte_link> first,
                               std::shared_ptr<link_switch> next,
                               resume_options options)
  : lower_(std::move(first)), next_(std::move(next)),
    options_(std::move(options)), ahead_(least_ahead) {
  reserve_timer();
}

resumable_link::~resumable_link() {
  next_->serve({});
}

bool resumable_link::has_unsent() const noexcept {
  return lower_ && records_sent_ < records_.size();
}

bool resumable_link::takes_data() const noexcept {
  return lower_ && is_agreed_ && room() > 0;
}

void resumable_link::lift_limit() noexcept {
  is_unlimited_ = true;
}

std::size_t resumable_link::kept() const noexcept {
  return unconfirmed_.size() - first_unconfirmed_;
}

std::size_t resumable_link::room() const noexcept {
  return is_unlimited_ ? max_payload : ahead_ - std::min(kept(), ahead_);
}

int resumable_link::socket() const noexcept {
  return lower_ ? lower_->socket() : timer_number_;
}

int resumable_link::release_socket() noexcept {
  return lower_ ? lower_->release_socket() : timer_.release();
}

// -- sending ------------------------------------------------------------------

/// Begins a record whose *size* bytes of payload the caller appends.
void resumable_link::append_record(std::size_t size) {
  auto length = htobe32(static_cast<std::uint32_t>(size));
  auto received = htobe64(received_);
  append(records_, &length, sizeof(length));
  append(records_, &received, sizeof(received));
  told_ = received_;
}

/// Sends what the connection takes now. False: it is broken.
bool resumable_link::send_records() {
  while (records_sent_ < records_.size()) {
    auto size = lower_->send(std::span{records_}.subspan(records_sent_));
    if (!size)
      return false;
    if (*size == 0)
      return true;
    records_sent_ += *size;
  }
  empty_buffer(records_);
  records_sent_ = 0;
  return true;
}

std::optional<std::size_t>
resumable_link::send(std::span<const std::byte> bytes) {
  if (is_over_)
    return std::nullopt;
  if (!lower_)
    return 0;
  if (!send_records())
    return std::nullopt;
  if (has_unsent() || !is_agreed_)
    return 0;
  if (!waits_for_room_ && kept() < max_silence)
    ahead_ = least_ahead;
  waits_for_room_ = bytes.size() > room();
  auto part = bytes.first(std::min({bytes.size(), room(), max_payload}));
  if (part.empty())
    return 0;
  append_record(part.size());
  append(records_, part.data(), part.size());
  append(unconfirmed_, part.data(), part.size());
  // If that fails, the next call says so: these bytes are taken.
  send_records();
  return part.size();
}

void resumable_link::finish() noexcept {
  if (!lower_ || is_over_)
    return;
  append_record(last_record);
  send_records();
  lower_->finish();
}

// -- receiving ----------------------------------------------------------------

std::optional<std::size_t>
resumable_link::receive(std::span<std::byte> buffer) {
  if (!lower_) {
    is_over_ = is_over_ || is_patience_over();
    return is_over_ ? std::nullopt : std::optional<std::size_t>{0};
  }
  for (;;) {
    if (auto size = take_records(buffer); size > 0) {
      confirm_received();
      return size;
    }
    if (is_over_)
      return std::nullopt;
    auto rest = raw_end_ - raw_begin_; // Less than a header.
    raw_.resize(header_size + raw_read_size);
    std::copy_n(raw_.begin() + static_cast<std::ptrdiff_t>(raw_begin_), rest,
                raw_.begin());
    auto size = lower_->receive(std::span{raw_}.subspan(rest));
    raw_begin_ = 0;
    raw_end_ = rest + size.value_or(0);
    if (!size || *size == 0)
      return size;
    last_received_ = options_.now();
  }
}

/// Moves payload of the records in `raw_` to *to*.
std::size_t resumable_link::take_records(std::span<std::byte> to) {
  std::size_t filled = 0;
  while (!is_over_ && filled < to.size()) {
    auto raw = std::span<const std::byte>{raw_}.subspan(raw_begin_,
                                                        raw_end_ - raw_begin_);
    if (payload_left_ == 0) {
      if (raw.size() < header_size)
        break;
      raw_begin_ += header_size;
      is_over_ = !take_header(raw.first(header_size));
      continue;
    }
    auto size = std::min({payload_left_, raw.size(), to.size() - filled});
    if (size == 0)
      break;
    std::memcpy(to.data() + filled, raw.data(), size);
    filled += size;
    raw_begin_ += size;
    payload_left_ -= size;
    received_ += size;
  }
  return filled;
}

/// False: the other side has finished, or sends something else than a record.
bool resumable_link::take_header(std::span<const std::byte> header) {
  std::uint32_t size = 0;
  std::uint64_t received = 0;
  std::memcpy(&size, header.data(), sizeof(size));
  std::memcpy(&received, header.data() + sizeof(size), sizeof(received));
  size = be32toh(size);
  if (size == last_record)
    return false;
  payload_left_ = size;
  return size <= max_payload && take_confirmation(be64toh(received));
}

bool resumable_link::take_confirmation(std::uint64_t received) {
  if (received < confirmed_ || received - confirmed_ > kept())
    return false;
  auto size = static_cast<std::size_t>(received - confirmed_);
  first_unconfirmed_ += size;
  confirmed_ = received;
  if (waits_for_room_)
    ahead_ = std::min(ahead_ + size / 2, most_ahead);
  if (first_unconfirmed_ == unconfirmed_.size()) {
    empty_buffer(unconfirmed_);
    first_unconfirmed_ = 0;
  } else if (first_unconfirmed_ > unconfirmed_.size() / 2) {
    unconfirmed_.erase(unconfirmed_.begin(),
                       unconfirmed_.begin()
                         + static_cast<std::ptrdiff_t>(first_unconfirmed_));
    first_unconfirmed_ = 0;
  }
  if (!std::exchange(is_agreed_, true))
    repeat_unconfirmed();
  return true;
}

void resumable_link::repeat_unconfirmed() {
  auto rest =
    std::span<const std::byte>{unconfirmed_}.subspan(first_unconfirmed_);
  while (!rest.empty()) {
    auto part = rest.first(std::min(rest.size(), max_payload));
    append_record(part.size());
    append(records_, part.data(), part.size());
    rest = rest.subspan(part.size());
  }
}

void resumable_link::confirm_received() {
  if (received_ - told_ < max_silence)
    return;
  append_record(0);
  // A break is found by the next `receive` or `send`.
  send_records();
}

// -- another connection -------------------------------------------------------

void resumable_link::close_lower() noexcept {
  if (lower_)
    reset_connection(lower_->socket());
  lower_.reset();
  raw_begin_ = raw_end_ = 0;
  payload_left_ = 0;
  empty_buffer(records_);
  records_sent_ = 0;
  ahead_ = least_ahead; // The next connection is slow at first.
}

void resumable_link::reserve_timer() noexcept {
  if (!next_timer_)
    next_timer_.reset(
      ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
}

bool resumable_link::start_timer(std::chrono::milliseconds limit) {
  limit = std::max(limit, 1ms);
  timer_end_ = options_.now() + limit;
  return set_timer(timer_number_, limit);
}

/// After a break.
std::chrono::milliseconds resumable_link::patience_left() const {
  auto silent = std::chrono::ceil<std::chrono::milliseconds>(options_.now()
                                                             - last_received_);
  if (is_agreed_ && silent < options_.sudden)
    return options_.least_patience;
  return std::max(next_->patience().value_or(options_.patience) - silent,
                  options_.least_patience);
}

/// Whether no other connection has come in time.
bool resumable_link::is_patience_over() {
  std::uint64_t expirations = 0;
  if (::read(timer_number_, &expirations, sizeof(expirations))
      != sizeof(expirations))
    return false;
  return !stood_still(options_.now(), timer_end_)
         || !start_timer(options_.least_patience);
}

bool resumable_link::wait_for_next() {
  is_over_ = is_over_ || !lower_ || (is_agreed_ && lower_->was_closed());
  if (is_over_)
    return false;
  close_lower();
  reserve_timer(); // If there was no descriptor for one before.
  timer_ = std::move(next_timer_);
  timer_number_ = timer_.get();
  is_over_ = !timer_ || !start_timer(patience_left());
  if (!is_over_ && options_.on_break)
    options_.on_break();
  return !is_over_;
}

bool resumable_link::resume(std::unique_ptr<byte_link> next) {
  is_over_ = is_over_ || !next;
  if (is_over_)
    return false;
  close_lower();
  lower_ = std::move(next);
  last_received_ = options_.now();
  is_agreed_ = false;
  append_record(0);
  reserve_timer();
  return true;
}

} // namespace troupe::internal
