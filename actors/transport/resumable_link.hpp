#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "troupe/actors/transport/byte_link.hpp"

namespace troupe::internal {

/// Brings a `resumable_link` its next connection. Any thread.
class link_switch {
public:
  using handler = std::function<void(std::unique_ptr<byte_link>)>;

  /// The link continues over *next*, which its other side does as well; null:
  /// there is none, the link is over. Closes *next* if the link is gone.
  void connect(std::unique_ptr<byte_link> next);

  /// From now on *f* is called with each connection, at once with the latest
  /// that came before; empty: they are closed. When this returns, no other call
  /// is under way.
  void serve(handler f);

  /// From the next break on, the link waits this long for its next connection,
  /// in place of `resume_options::patience`.
  void wait_for(std::chrono::milliseconds patience) noexcept {
    patience_ms_ = patience.count();
  }

  /// What `wait_for` got; unset: nothing yet.
  std::optional<std::chrono::milliseconds> patience() const noexcept {
    std::chrono::milliseconds result{patience_ms_};
    return result.count() > 0 ? std::optional{result} : std::nullopt;
  }

private:
  std::atomic<std::int64_t> patience_ms_{0};
  std::mutex mutex_;
  handler handler_;
  bool is_served_ = false; ///< Or was.
  std::optional<std::unique_ptr<byte_link>> early_;
};

struct resume_options {
  /// How long after the last received byte another connection is waited for.
  std::chrono::milliseconds patience{10'000};

  /// At least as long after a break: silence may have been no fault.
  std::chrono::milliseconds least_patience{1'000};

  /// A break so soon after the last received byte is not of the network: the
  /// other side's process has probably ended. It leaves only `least_patience`.
  /// 0: no break does, nor one of a connection that was not answered on.
  std::chrono::milliseconds sudden{0};

  /// Called at each break, on the thread that uses the link; must not wait.
  std::function<void()> on_break;

  /// The clock by which the link waits.
  std::function<std::chrono::steady_clock::time_point()> now =
    std::chrono::steady_clock::now;
};

/// A connection whose bytes arrive once and in order although the connection
/// below it breaks and is replaced.
///
/// What was sent is kept until the other side has confirmed it; after a break
/// each side says how much it has received, and the other repeats the rest.
/// Both sides must use this class. No side sends more ahead than the other's
/// kernel takes while its process is stopped. While there is no connection
/// below, `socket` is a timer, which becomes readable when the patience is
/// over. Time in which the process stood still does not count: what came
/// meanwhile is seen later.
class resumable_link : public byte_link {
public:
  resumable_link(std::unique_ptr<byte_link> first,
                 std::shared_ptr<link_switch> next, resume_options options);

  ~resumable_link() override;

  std::optional<std::size_t> receive(std::span<std::byte> buffer) override;
  std::optional<std::size_t> send(std::span<const std::byte> bytes) override;
  void finish() noexcept override;
  bool holds_data() const noexcept override { return true; }
  bool was_closed() const noexcept override { return is_over_; }
  bool has_unsent() const noexcept override;
  bool takes_data() const noexcept override;
  resumable_link* resumable() noexcept override { return this; }
  int socket() const noexcept override;
  int release_socket() noexcept override;

  /// From now on sends whatever the socket takes: nothing will be received any
  /// more that confirms it.
  void lift_limit() noexcept;

  /// After `receive` or `send` has returned nothing: closes what is below.
  /// False: the link is over, because the other side has closed it or there is
  /// no time left. Otherwise `socket` is another one now.
  bool wait_for_next();

  /// Continues over *next*, whatever is below now. False, also if it is null:
  /// the link is over. Otherwise `socket` is another one now.
  bool resume(std::unique_ptr<byte_link> next);

  bool is_broken() const noexcept { return !lower_; }

  /// Where its connections come from.
  link_switch& next() noexcept { return *next_; }

private:
  using clock = std::chrono::steady_clock;

  void close_lower() noexcept;
  void reserve_timer() noexcept;
  bool start_timer(std::chrono::milliseconds limit);
  std::chrono::milliseconds patience_left() const;
  bool is_patience_over();
  void append_record(std::size_t size);
  bool send_records();
  void confirm_received();
  /// How many bytes were sent and are not confirmed.
  std::size_t kept() const noexcept;
  /// How many more may be sent now.
  std::size_t room() const noexcept;
  bool take_header(std::span<const std::byte> header);
  bool take_confirmation(std::uint64_t received);
  void repeat_unconfirmed();
  std::size_t take_records(std::span<std::byte> to);

  std::unique_ptr<byte_link> lower_; ///< null: broken
  std::shared_ptr<link_switch> next_;
  resume_options options_;
  unique_fd timer_;
  int timer_number_ = -1;
  unique_fd next_timer_; ///< For a break while no descriptor is left.
  clock::time_point timer_end_{};
  clock::time_point last_received_ = options_.now();
  bool is_over_ = false;

  // What is sent.
  std::vector<std::byte> unconfirmed_;
  std::size_t first_unconfirmed_ = 0; ///< Index into `unconfirmed_`.
  std::uint64_t confirmed_ = 0;       ///< Bytes that the other side has.
  std::vector<std::byte> records_;    ///< To be sent over `lower_`.
  std::size_t records_sent_ = 0;
  /// It is known what the other side has. Until then the connection may be one
  /// that the other side has given up for another.
  bool is_agreed_ = true;
  std::size_t ahead_;           ///< How many bytes may be unconfirmed.
  bool waits_for_room_ = false; ///< The latest `send` had more than that.
  bool is_unlimited_ = false;   ///< See `lift_limit`.

  // What is received.
  std::vector<std::byte> raw_; ///< From `lower_`.
  std::size_t raw_begin_ = 0;  ///< From here to `raw_end_` not looked at yet.
  std::size_t raw_end_ = 0;
  std::size_t payload_left_ = 0; ///< Of the record that has begun.
  std::uint64_t received_ = 0;
  std::uint64_t told_ = 0; ///< Of `received_`, the other side knows.
};

} // namespace troupe::internal
