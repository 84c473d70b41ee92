#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/message.hpp>
#include <caf/type_id.hpp>

#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

namespace internal {

class mailbox_core;

template <class T>
constexpr void check_message_type() {
  static_assert(caf::has_type_id_v<T>,
                "a message to a rank needs a type id: CAF_ADD_TYPE_ID in a "
                "block that begins at ::troupe::first_user_type_id");
}

/// What the sender of a message still waits for. In a process that user code
/// forks, nothing would send the answer: calls throw there, and the destructor
/// does nothing.
class open_answer {
public:
  open_answer(caf::actor relay, std::uint64_t id, bool is_open) noexcept
    : relay_(std::move(relay)), id_(id), is_open_(is_open) {}

  open_answer(open_answer&& x) noexcept
    : process_(x.process_), relay_(std::move(x.relay_)), id_(x.id_),
      is_open_(std::exchange(x.is_open_, false)) {}

  open_answer& operator=(open_answer&& x) noexcept;

  /// Answers without a value.
  ~open_answer();

  void give(caf::message x);
  void refuse(error reason);

private:
  void check_process() const;

  owner_process process_;
  caf::actor relay_;
  std::uint64_t id_;
  bool is_open_;
};

} // namespace internal

/// How a rank takes messages.
struct mailbox_options {
  /// Messages that may wait for the loop or be on their way to it. A sender
  /// that finds no room gets `ec::mailbox_full`.
  std::size_t capacity = 256;
};

/// A message that the loop has taken. A sender that asked gets the answer of
/// the loop; if there is none, an empty one once this object is gone.
template <class T>
class received {
public:
  received(T x, internal::open_answer answer)
    : value(std::move(x)), answer_(std::move(answer)) {}

  T value;

  template <class Answer>
  void answer(Answer x) {
    internal::check_message_type<Answer>();
    answer_.give(caf::make_message(std::move(x)));
  }

  /// A sender that asked gets *reason* as the error of its request.
  void refuse(error reason) { answer_.refuse(std::move(reason)); }

private:
  internal::open_answer answer_;
};

/// The mailbox of a rank: actors of a service, and of other processes, send
/// messages to its loop. One per rank at a time (a second one throws); for the
/// loop's thread alone.
///
/// Those who send get the rank's handle by `follow_ranks`. A restarted rank
/// never sees messages of the attempt before. All calls throw `train_error`,
/// `run_stopped` once the run stops or a peer has failed; so do those of what
/// it has received, in a process that the loop forked.
class rank_mailbox {
public:
  explicit rank_mailbox(train_context& context, mailbox_options options = {});
  ~rank_mailbox();

  rank_mailbox(const rank_mailbox&) = delete;
  rank_mailbox& operator=(const rank_mailbox&) = delete;

  /// The oldest message of type *T* that is here.
  template <class T>
  std::optional<received<T>> try_receive() {
    internal::check_message_type<T>();
    return unpacked<T>(take(caf::type_id_v<T>));
  }

  /// Waits for a message of type *T*. While it waits, it runs the network of
  /// the rank, as `report` does.
  template <class T>
  received<T> receive() {
    internal::check_message_type<T>();
    return std::move(*unpacked<T>(wait(caf::type_id_v<T>, std::nullopt)));
  }

  /// The same, at most *limit*; above ten years there is none.
  template <class T>
  std::optional<received<T>> receive(std::chrono::milliseconds limit) {
    internal::check_message_type<T>();
    return unpacked<T>(wait(caf::type_id_v<T>, limit));
  }

  /// Calls *handler* with each message of type *T* from now on, while the loop
  /// computes: on the thread of the rank's network, which it must not hold up.
  /// What *handler* returns is the answer; what it throws is an error of the
  /// sender.
  template <class T, class F>
  void on(F handler) {
    internal::check_message_type<T>();
    using result = std::invoke_result_t<F&, T&>;
    handle(caf::type_id_v<T>,
           [f = std::move(handler)](caf::message& x) mutable -> caf::message {
             auto& value = x.get_mutable_as<T>(0);
             if constexpr (std::is_void_v<result>) {
               f(value);
               return {};
             } else {
               internal::check_message_type<result>();
               return caf::make_message(f(value));
             }
           });
  }

  /// Messages that wait for the loop.
  std::size_t waiting() const;

  /// Messages dropped whose senders wanted no answer: there was no room, or
  /// they were refused, or this rank could not read them.
  std::uint64_t dropped() const;

  /// This rank as others know it. It may travel in messages.
  const caf::actor& handle() const noexcept;

private:
  struct taken {
    caf::message body;
    internal::open_answer answer;
  };

  template <class T>
  static std::optional<received<T>> unpacked(std::optional<taken> x) {
    if (!x)
      return std::nullopt;
    return received<T>{std::move(x->body.get_mutable_as<T>(0)),
                       std::move(x->answer)};
  }

  std::optional<taken> take(caf::type_id_t type);
  std::optional<taken> wait(caf::type_id_t type,
                            std::optional<std::chrono::milliseconds> limit);
  void handle(caf::type_id_t type,
              std::function<caf::message(caf::message&)> f);

  internal::owned_ptr<internal::mailbox_core> core_;
};

/// The actor system of the run in this rank: for actors of the loop's own, and
/// to send messages. In a rank process it ends with the process. On another
/// host than the driver's, it reaches actors of the process of the run only:
/// what is sent to others is lost.
caf::actor_system& actor_system_of(train_context& context);

} // namespace troupe
