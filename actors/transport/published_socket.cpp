#include "troupe/actors/transport/published_socket.hpp"

#include <bitset>
#include <mutex>
#include <optional>
#include <utility>

#include <caf/io/middleman.hpp>
#include <caf/send.hpp>

#include "troupe/actors/transport/unix_doorman.hpp"
#include "troupe/actors/transport/unix_endpoint.hpp"

namespace troupe {

namespace {

/// Where CAF's published actors have their port, ours have a slot. Slots are
/// privileged port numbers, so that they never meet a TCP port of an actor in
/// the same system.
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

published_socket::published_socket(caf::actor_system& system, fs::path path,
                                   std::uint16_t slot, door_ptr door)
  : system_(&system), path_(std::move(path)), slot_(slot),
    door_(std::move(door)) {}

published_socket::published_socket(published_socket&& other) noexcept
  : system_(std::exchange(other.system_, nullptr)),
    path_(std::move(other.path_)), slot_(other.slot_), door_(other.door_) {}

published_socket&
published_socket::operator=(published_socket&& other) noexcept {
  if (this != &other) {
    close();
    system_ = std::exchange(other.system_, nullptr);
    path_ = std::move(other.path_);
    slot_ = other.slot_;
    door_ = other.door_;
  }
  return *this;
}

published_socket::~published_socket() {
  close();
}

void published_socket::close() noexcept {
  if (!system_)
    return;
  boost::system::error_code ignored;
  fs::remove(path_, ignored);
  // Needs no answer: whoever gets the slot next comes later in the broker's
  // mailbox.
  caf::anon_send(system_->middleman().get_named_broker("BASP"),
                 caf::close_atom_v, slot_);
  slots.give_back(slot_);
}

expected<published_socket> publish_actor(caf::actor_system& system,
                                         caf::strong_actor_ptr whom,
                                         std::set<std::string> interface,
                                         const fs::path& path,
                                         refusal_handler on_refusal) {
  if (!whom)
    return failure(ec::invalid_argument,
                   "no actor to publish at " + path.string());
  auto slot = slots.take();
  if (!slot)
    return failure(ec::conflict, "this process has 1023 open sockets already");
  auto socket = listen_at(path);
  if (!socket) {
    slots.give_back(*slot);
    return tl::unexpected{std::move(socket.error())};
  }
  auto shared = std::make_shared<door>();
  shared->on_refusal = std::move(on_refusal);
  auto& loop =
    static_cast<unix_doorman::multiplexer&>(system.middleman().backend());
  caf::io::doorman_ptr doorman =
    caf::make_counted<unix_doorman>(loop, socket->release(), *slot, shared);
  caf::anon_send(system.middleman().get_named_broker("BASP"),
                 caf::publish_atom_v, std::move(doorman), *slot,
                 std::move(whom), std::move(interface));
  return published_socket{system, path, *slot, std::move(shared)};
}

} // namespace troupe
