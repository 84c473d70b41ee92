#include "troupe/actors/mailbox_relay.hpp"

#include <utility>

#include "troupe/actors/callback_chain.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// A buffer of this thread; more memory than this is given back.
constexpr std::size_t kept_scratch = 1024 * 1024;
thread_local caf::byte_buffer scratch;

} // namespace

expected<void> check_length(caf::actor_system& system, const caf::message& x,
                            const std::string& what) {
  scratch.clear();
  caf::binary_serializer sink{system, scratch};
  if (!x.save(sink))
    return failure(ec::invalid_argument, what + " cannot be serialized: "
                                           + caf::to_string(sink.get_error()));
  auto size = scratch.size();
  if (scratch.capacity() > kept_scratch)
    caf::byte_buffer{}.swap(scratch);
  if (size <= longest_message)
    return {};
  return failure(ec::invalid_argument,
                 concat(what, " has ", size, " bytes, the limit is ",
                        longest_message,
                        ": to ranks on the driver's host bulk data travels as "
                        "shared_bytes"));
}

std::string mailbox_relay_state::rank_text() const {
  return concat("rank ", args.order.rank, " of attempt ", args.order.attempt);
}

caf::result<caf::message> mailbox_relay_state::pass_on(caf::message& x) {
  auto wants_answer = self->current_message_id().is_request();
  auto refuse = [&](ec code, std::string why) -> caf::result<caf::message> {
    if (wants_answer)
      return to_caf({code, std::move(why)});
    // An error would end a sender that does not expect it.
    window.drop();
    if (window.is_empty()) // No message will be taken.
      tell_drops();
    return caf::delegated<caf::message>{};
  };
  if (x.size() != 1)
    return refuse(ec::invalid_argument,
                  concat("a message to ", rank_text(),
                         " must be one value, this one has ", x.size()));
  if (!window.take_place())
    return refuse(ec::mailbox_full,
                  concat(rank_text(), " takes no more messages now: ",
                         window.capacity(), " wait for its loop, the limit"));
  auto hold = prepare(x);
  if (!hold) {
    window.give_back(1);
    return refuse(hold.error().code, hold.error().message);
  }
  auto id = next_id++;
  if (wants_answer)
    unanswered.emplace(id, self->make_response_promise());
  if (*hold)
    held.emplace_back(id, *hold);
  send(
    self, args.postbox,
    mail{id, wants_answer, args.order.is_near, std::move(x), std::move(*hold)});
  return caf::delegated<caf::message>{};
}

expected<shared_hold> mailbox_relay_state::prepare(const caf::message& x) {
  if (args.postbox.node() == self->system().node())
    return shared_hold{};
  // All of it, also what has no descriptor yet: the message is saved once more
  // when it leaves, and there may be room for one by then.
  auto holds = std::make_shared<std::vector<shared_hold>>();
  near_scope scope{args.order.is_near, holds.get()};
  TROUPE_TRY_VOID(
    check_length(self->system(), x, "a message to " + rank_text()));
  return holds->empty() ? shared_hold{} : shared_hold{std::move(holds)};
}

void mailbox_relay_state::answer(mail_answer& x) {
  auto waiting = unanswered.extract(x.id);
  if (!waiting)
    return;
  if (x.refusal)
    waiting.mapped().deliver(to_caf(x.refusal));
  else
    waiting.mapped().deliver(std::move(x.body));
}

void mailbox_relay_state::taken(const mail_taken& x) {
  window.give_back(x.messages);
  messages_taken += x.messages;
  // The rank reads messages in order, and takes none that it has not read.
  while (!held.empty() && held.front().first < messages_taken)
    held.pop_front();
  tell_drops();
}

void mailbox_relay_state::tell_drops() {
  if (auto dropped = window.news_of_drops())
    send(self, args.postbox, mail_dropped{*dropped});
}

void mailbox_relay_state::end(const error& reason) {
  auto why = to_caf(reason);
  for (auto& [id, promise] : std::exchange(unanswered, {}))
    promise.deliver(why);
  self->quit(why);
}

caf::behavior mailbox_relay(mailbox_relay_state::pointer self,
                            mailbox_relay_args args) {
  auto& state = state_of(self);
  state.self = self;
  state.window = mailbox_window{args.order.capacity};
  auto on_down = [&state](const caf::down_msg&) {
    state.end({ec::stopped, state.rank_text() + " is gone"});
  };
  monitor(self, args.postbox, on_down);
  // The relay ends with the postbox and the driver. It holds no handle of the
  // driver, so it does not keep that alive.
  monitor(self, std::exchange(args.driver, nullptr), on_down);
  state.args = std::move(args);
  caf::message_handler handlers{
    [&state](mail_answer& x) { state.answer(x); },
    [&state](const mail_taken& x) { state.taken(x); },
    // The attempt is over, or the rank has closed its mailbox.
    [&state](const attempt_over&) {
      state.end({ec::stopped, state.rank_text() + " takes no more messages"});
    },
  };
  auto behavior = with_fallback(
    self, [&state](caf::message& x) { return state.pass_on(x); },
    std::move(handlers));
  // Any actor that has the handle of a rank may link to it, or send an exit:
  // the mailbox is the rank's.
  return with_exit_handler(
    self, [] {}, std::move(behavior));
}

} // namespace troupe::internal
