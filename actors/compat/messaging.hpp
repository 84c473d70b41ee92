#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <caf/actor.hpp>
#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/behavior.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/byte_buffer.hpp>
#include <caf/config.hpp>
#include <caf/error.hpp>
#include <caf/message_handler.hpp>
#include <caf/result.hpp>
#include <caf/send.hpp>
#include <caf/system_messages.hpp>
#include <caf/typed_behavior.hpp>

#if CAF_MAJOR_VERSION >= 1
#include <caf/anon_mail.hpp>
#endif

// Differences between CAF 0.18 and 1.x in how actors send messages. Only this
// folder checks the version.
namespace troupe::internal {

/// Whether this is CAF 1.x.
inline constexpr bool caf_1 = CAF_MAJOR_VERSION >= 1;

// -- messages

/// Sends a message to *whom* and expects no answer.
template <class Self, class Handle, class... Ts>
void send(Self&& self, const Handle& whom, Ts&&... message) {
  if constexpr (caf_1)
    self->mail(std::forward<Ts>(message)...).send(whom);
  else
    self->send(whom, std::forward<Ts>(message)...);
}

/// Sends a message that names no sender. Any thread.
template <class Handle, class... Ts>
void send_anonymous(const Handle& whom, Ts&&... message) {
#if CAF_MAJOR_VERSION >= 1
  caf::anon_mail(std::forward<Ts>(message)...).send(whom);
#else
  caf::anon_send(whom, std::forward<Ts>(message)...);
#endif
}

/// Sends a request to *whom*; the result takes the handlers of the answer.
template <class Self, class Handle, class Timeout, class... Ts>
auto request(Self&& self, const Handle& whom, Timeout limit, Ts&&... message) {
  if constexpr (caf_1)
    return self->mail(std::forward<Ts>(message)...).request(whom, limit);
  else
    return self->request(whom, limit, std::forward<Ts>(message)...);
}

/// Lets *whom* answer the current request, in the form of *message*.
template <class Self, class Handle, class... Ts>
auto delegate(Self&& self, const Handle& whom, Ts&&... message) {
  if constexpr (caf_1)
    return self->mail(std::forward<Ts>(message)...).delegate(whom);
  else
    return self->delegate(whom, std::forward<Ts>(message)...);
}

// -- actors that end

/// Calls *on_down* with a `caf::down_msg` once *whom* has ended. An actor gives
/// the same function for all that it monitors: CAF 0.18 keeps only the last.
template <class Self, class Handle, class F>
void monitor(Self* self, const Handle& whom, F on_down) {
  if constexpr (caf_1) {
    self->monitor(whom, [source = whom.address(),
                         f = std::move(on_down)](const caf::error& reason) {
      caf::down_msg down{source, reason};
      f(down);
    });
  } else {
    self->set_down_handler(std::move(on_down));
    self->monitor(whom);
  }
}

/// Sends *whom* an exit message with the reason *why*. Any thread.
template <class Handle>
void send_exit_anonymous(const Handle& whom, caf::error why) {
  if (auto actor = caf::actor_cast<caf::actor>(whom))
    send_anonymous(actor, caf::exit_msg{whom.address(), std::move(why)});
}

/// Adds a handler for exit messages to *behavior*: it calls *on_exit* with the
/// reason, and the actor does not quit by itself.
template <class Self, class F, class... Signatures>
caf::typed_behavior<Signatures...>
with_exit_handler(Self* self, F on_exit,
                  caf::typed_behavior<Signatures...> behavior) {
  auto handler = [f = std::move(on_exit)](caf::exit_msg& x) { f(x.reason); };
  if constexpr (caf_1) {
    return {caf::unsafe_behavior_init,
            caf::message_handler{std::move(handler)}.or_else(
              std::move(behavior.unbox()))};
  } else {
    self->set_exit_handler(std::move(handler));
    return behavior;
  }
}

/// The same for an actor without a type.
template <class Self, class F>
caf::behavior with_exit_handler(Self* self, F on_exit,
                                caf::message_handler behavior) {
  auto handler = [f = std::move(on_exit)](caf::exit_msg&) { f(); };
  if constexpr (caf_1) {
    return caf::message_handler{std::move(handler)}.or_else(
      std::move(behavior));
  } else {
    self->set_exit_handler(std::move(handler));
    return behavior;
  }
}

/// *behavior* for an actor that passes on what it has no handler for:
/// *on_other* takes the message and returns a `caf::result<caf::message>`.
template <class Self, class F>
caf::message_handler with_fallback(Self* self, F on_other,
                                   caf::message_handler behavior) {
  if constexpr (caf_1) {
    return behavior.or_else(
      [f = std::move(on_other)](caf::message& x) -> caf::result<caf::message> {
        return f(x);
      });
  } else {
    auto handler =
      [f = std::move(on_other)](caf::message& x) -> caf::skippable_result {
      auto result = f(x);
      return visit(
        [](auto& y) -> caf::skippable_result { return std::move(y); },
        result.get_data());
    };
    self->set_default_handler(std::move(handler));
    return behavior;
  }
}

// -- state and bytes

/// The state of a stateful actor.
template <class Actor>
auto& state_of(Actor* self) {
  if constexpr (caf_1)
    return self->state();
  else
    return self->state;
}

/// Writes messages without handles of actors to the end of *bytes*.
inline caf::binary_serializer serializer_to(caf::byte_buffer& bytes) {
#if CAF_MAJOR_VERSION >= 1
  return caf::binary_serializer{bytes};
#else
  return caf::binary_serializer{nullptr, bytes};
#endif
}

/// Reads what `serializer_to` has written. *bytes* must outlive the result.
template <class Bytes>
caf::binary_deserializer deserializer_of(const Bytes& bytes) {
  if constexpr (caf_1)
    return caf::binary_deserializer{bytes.data(), bytes.size()};
  else
    return caf::binary_deserializer{nullptr, bytes.data(), bytes.size()};
}

/// Writes *bytes* as they are.
inline bool put_bytes(caf::binary_serializer& sink,
                      std::span<const std::byte> bytes) {
#if CAF_MAJOR_VERSION >= 1
  return sink.value(caf::const_byte_span{bytes.data(), bytes.size()});
#else
  auto first = reinterpret_cast<const caf::byte*>(bytes.data());
  return sink.value(caf::span<const caf::byte>{first, bytes.size()});
#endif
}

/// The bytes that are yet to be read.
inline std::span<const std::byte> rest_of(const caf::binary_deserializer& x) {
  auto rest = x.remainder();
  return {reinterpret_cast<const std::byte*>(rest.data()), rest.size()};
}

} // namespace troupe::internal
