#include "troupe/actors/transport/private_endpoint.hpp"

#include <utility>
#include <vector>

#include <caf/io/abstract_broker.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/doorman.hpp>
#include <caf/io/middleman.hpp>

#include "troupe/actors/transport/framed_scribe.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// Passes connections to CAF's broker that need no accept. Everything but
/// `enter` happens on the network thread.
class pair_doorman : public caf::io::doorman {
public:
  using multiplexer = framed_scribe::multiplexer;

  // The number only has to differ from those of sockets.
  pair_doorman(multiplexer& loop, std::uint16_t slot,
               refusal_handler on_refusal)
    : doorman(caf::io::accept_handle::from_int(-1 - std::int64_t{slot})),
      loop_(loop), slot_(slot), on_refusal_(std::move(on_refusal)) {}

  /// Takes *link*, which is connected.
  void enter(std::unique_ptr<byte_link> link) {
    auto self = caf::intrusive_ptr{this};
    auto shared = std::make_shared<std::unique_ptr<byte_link>>(std::move(link));
    loop_.post([self, shared] {
      self->waiting_.push_back(std::move(*shared));
      self->accept_waiting();
    });
  }

  bool new_connection() override { return false; }

  void graceful_shutdown() override {
    auto guard = caf::intrusive_ptr{this};
    detach(&loop_, false);
  }

  void launch() override {
    // Not now: the broker is still creating this doorman.
    loop_.post([self = caf::intrusive_ptr{this}] {
      self->open_ = true;
      self->accept_waiting();
    });
  }

  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return slot_; }
  void add_to_loop() override {}
  void remove_from_loop() override {}

private:
  void accept_waiting() {
    if (!open_)
      return;
    for (auto& link : std::exchange(waiting_, {})) {
      if (detached())
        continue;
      auto scribe = caf::make_counted<framed_scribe>(
        loop_, std::move(link), frame_guard::side::server, on_refusal_);
      auto handle = scribe->hdl();
      parent()->add_scribe(std::move(scribe));
      doorman::new_connection(&loop_, handle);
    }
  }

  multiplexer& loop_;
  std::uint16_t slot_;
  refusal_handler on_refusal_;
  std::vector<std::unique_ptr<byte_link>> waiting_;
  bool open_ = false; ///< The broker knows this doorman.
};

expected<private_endpoint>
private_endpoint::open(caf::actor_system& system, caf::strong_actor_ptr whom,
                       std::set<std::string> interface,
                       refusal_handler on_refusal) {
  auto& loop =
    static_cast<pair_doorman::multiplexer&>(system.middleman().backend());
  caf::intrusive_ptr<pair_doorman> doorman;
  auto make = [&](std::uint16_t slot) -> caf::io::doorman_ptr {
    doorman = caf::make_counted<pair_doorman>(loop, slot, on_refusal);
    return doorman;
  };
  TROUPE_TRY(auto published, publication::begin(system, std::move(whom),
                                                std::move(interface), make));
  return private_endpoint{std::move(published), std::move(doorman)};
}

private_endpoint::private_endpoint(publication published,
                                   caf::intrusive_ptr<pair_doorman> doorman)
  : published_(std::move(published)), doorman_(std::move(doorman)) {}

private_endpoint::private_endpoint(private_endpoint&&) noexcept = default;

private_endpoint&
private_endpoint::operator=(private_endpoint&&) noexcept = default;

private_endpoint::~private_endpoint() = default;

expected<unique_fd> private_endpoint::new_connection() {
  TROUPE_TRY(auto ends, socket_pair("cannot make a rank's socket"));
  add(std::make_unique<socket_link>(std::move(ends.first)));
  return std::move(ends.second);
}

void private_endpoint::add(std::unique_ptr<byte_link> link) {
  doorman_->enter(std::move(link));
}

void cut_off(caf::actor_system& system, const caf::node_id& whose) {
  // The broker runs on the network thread, too.
  system.middleman().backend().post([broker = broker_of(system), whose] {
    auto* basp = static_cast<caf::io::basp_broker*>(
      caf::actor_cast<caf::abstract_actor*>(broker));
    auto handle = basp->instance.tbl().lookup_direct(whose);
    auto scribe = handle ? basp->take(*handle) : nullptr;
    if (scribe) // All connections of the broker are of this class.
      static_cast<framed_scribe&>(*scribe).close();
  });
}

} // namespace troupe::internal
