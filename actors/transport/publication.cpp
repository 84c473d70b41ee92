#include "troupe/actors/transport/publication.hpp"

#include <bitset>
#include <mutex>
#include <optional>
#include <utility>

#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>

#include "troupe/actors/compat/messaging.hpp"

namespace troupe::internal {

namespace {

class slot_pool {
public:
  std::optional<std::uint16_t> take() {
    std::lock_guard guard{mutex_};
    for (std::uint16_t i = 1; i < used_.size(); ++i)
      if (!used_[i]) {
        used_[i] = true;
        return i;
      }
    return std::nullopt;
  }

  void give_back(std::uint16_t slot) {
    std::lock_guard guard{mutex_};
    used_[slot] = false;
  }

private:
  std::mutex mutex_;
  std::bitset<1024> used_;
};

slot_pool slots;

} // namespace

caf::actor broker_of(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>("BASP");
}

expected<publication> publication::begin(caf::actor_system& system,
                                         caf::strong_actor_ptr whom,
                                         std::set<std::string> interface,
                                         const doorman_maker& make) {
  auto slot = slots.take();
  if (!slot)
    return failure(ec::conflict,
                   "this process has 1023 published actors already");
  send_anonymous(broker_of(system), caf::publish_atom_v, make(*slot), *slot,
                 std::move(whom), std::move(interface));
  return publication{system, *slot};
}

publication::publication(publication&& other) noexcept
  : system_(std::exchange(other.system_, nullptr)), slot_(other.slot_),
    owner_(other.owner_) {}

publication& publication::operator=(publication&& other) noexcept {
  if (this != &other) {
    end();
    system_ = std::exchange(other.system_, nullptr);
    slot_ = other.slot_;
    owner_ = other.owner_;
  }
  return *this;
}

publication::~publication() {
  end();
}

void publication::end() noexcept {
  if (!system_ || !owner_.is_here())
    return;
  // Needs no answer: the next owner of the slot comes later in the broker's
  // mailbox.
  send_anonymous(broker_of(*system_), caf::close_atom_v, slot_);
  slots.give_back(slot_);
}

} // namespace troupe::internal
