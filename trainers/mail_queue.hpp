#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include <caf/type_id.hpp>

#include "troupe/actors/protocol/mailbox_messages.hpp"
#include "troupe/runtime/run/mailbox_window.hpp"

namespace troupe::internal {

/// The messages that wait for the loop of a rank, by type. Filled by its
/// postbox, from another thread.
class mail_queue {
public:
  using clock = std::chrono::steady_clock;
  using handler = std::function<void(mail&)>;

  /// Calls *give_back* with places that have become free, on either thread.
  mail_queue(std::uint64_t capacity,
             std::function<void(std::uint64_t)> give_back)
    : returns_(capacity), give_back_(std::move(give_back)) {}

  // -- the postbox

  /// Calls the handler of its type, if there is one, or keeps it for the loop.
  void push(mail x);

  /// The relay had to drop *messages* so far.
  void note_dropped(std::uint64_t messages);

  /// A message that wanted no answer could not be read.
  void note_unread();

  /// No message is waited for any more.
  void end();

  // -- the loop

  /// The oldest message of *type*.
  std::optional<mail> take(caf::type_id_t type);

  /// Whether a wait for *type* is over.
  bool is_ready(caf::type_id_t type) const;

  /// Waits until there is a message of *type*, or the end. Without *deadline*
  /// for as long as it takes.
  void wait(caf::type_id_t type, std::optional<clock::time_point> deadline);

  /// Calls *f* with each message of *type*, from now on on the thread of the
  /// postbox, one at a time.
  void handle(caf::type_id_t type, handler f);

  /// Removes all handlers; none is being called when this returns.
  void close();

  std::size_t size() const;
  std::uint64_t dropped() const;

private:
  std::optional<mail> take_locked(caf::type_id_t type);
  bool is_ready_locked(caf::type_id_t type) const;
  void took(bool is_empty);
  void call(const handler& f, mail& x);

  /// Held while a handler is called; before the other one.
  std::mutex handling_;
  std::map<caf::type_id_t, handler> handlers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<caf::type_id_t, std::deque<mail>> waiting_;
  std::size_t size_ = 0;
  std::uint64_t dropped_ = 0; // by the relay
  std::uint64_t unread_ = 0;
  bool has_ended_ = false;
  mailbox_returns returns_;
  std::function<void(std::uint64_t)> give_back_;
};

} // namespace troupe::internal
