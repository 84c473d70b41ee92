// What the DRIVER does with the mailboxes of ranks: it makes them known to the
// actors that send messages there.

#include <algorithm>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/actors/mailbox_relay.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

caf::result<caf::actor> driver_state::open(open_mailbox& x,
                                           postbox_actor& box) {
  if (!group_alive || !begun || begun->attempt != x.attempt)
    return to_caf({ec::stopped, concat("attempt ", x.attempt, " is over")});
  auto rank = x.rank;
  mailboxes_expected = x.world_size;
  caf::actor relay = self->system().spawn(
    mailbox_relay,
    mailbox_relay_args{std::move(x), std::move(box), driver_actor{self}});
  monitor(self, relay, [this](const caf::down_msg& x) { lost(x); });
  mailboxes.insert_or_assign(rank, relay);
  announce_mailboxes();
  return relay;
}

caf::result<ranks_changed>
driver_state::follow_ranks_from_now(rank_observer_actor who) {
  if (!who)
    return to_caf({ec::invalid_argument, "no actor to follow the ranks"});
  if (std::ranges::find(rank_observers, who) == rank_observers.end()) {
    monitor(self, who, [this](const caf::down_msg& x) { lost(x); });
    rank_observers.push_back(std::move(who));
  }
  return known_ranks();
}

bool driver_state::mailbox_lost(const caf::actor_addr& who) {
  auto is_who = [&](const auto& x) { return x.address() == who; };
  if (std::erase_if(rank_observers, is_who))
    return true;
  if (!std::erase_if(mailboxes, [&](auto& x) { return is_who(x.second); }))
    return false;
  announce_mailboxes();
  return true;
}

void driver_state::close_mailboxes() {
  for (auto& [rank, relay] : mailboxes)
    send_anonymous(relay, attempt_over{machine->attempt()});
  mailboxes.clear();
  mailboxes_expected = 0;
  announce_mailboxes();
}

ranks_changed driver_state::known_ranks() const {
  // Ranks open theirs before the group says how many there are now.
  return {args.context.id, machine->attempt(),
          mailboxes_expected > 0 ? mailboxes_expected : world_size, mailboxes};
}

void driver_state::announce_mailboxes() {
  for (auto& who : rank_observers)
    send(self, who, known_ranks());
}

} // namespace troupe::internal
