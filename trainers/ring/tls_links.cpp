// Encrypted connections between leaders: the TLS of the door.

#include <memory>
#include <string>
#include <utility>

#include "troupe/actors/door/tls_channel.hpp"
#include "troupe/actors/door/tls_link.hpp"
#include "troupe/trainers/ring/link_security.hpp"

namespace troupe::internal {

namespace {

/// The handshake of one TLS connection between two leaders.
class tls_handshake : public link_handshake {
public:
  explicit tls_handshake(std::unique_ptr<tls_channel> channel)
    : channel_(std::move(channel)) {}

  progress advance() override {
    switch (channel_->shake_hands()) {
      case tls_channel::progress::done:
        return progress::done;
      case tls_channel::progress::wants_read:
        return progress::wants_read;
      case tls_channel::progress::wants_write:
        return progress::wants_write;
      default:
        return progress::failed;
    }
  }

  std::string problem() const override { return channel_->failure().text; }
  int socket() const noexcept override { return channel_->socket(); }

  std::unique_ptr<byte_link> take() override {
    return make_link(std::move(channel_));
  }

private:
  std::unique_ptr<tls_channel> channel_;
};

class tls_security : public link_security {
public:
  explicit tls_security(tls_identity identity)
    : identity_(std::move(identity)) {}

  bool encrypts() const noexcept override { return true; }

  expected<std::unique_ptr<link_handshake>> begin(unique_fd socket,
                                                  bool is_server) override {
    auto side =
      is_server ? tls_channel::side::server : tls_channel::side::client;
    TROUPE_TRY(auto channel,
               tls_channel::make(identity_, std::move(socket), side));
    return std::make_unique<tls_handshake>(std::move(channel));
  }

private:
  tls_identity identity_;
};

} // namespace

expected<link_credentials> make_link_credentials(std::string_view run) {
  TROUPE_TRY(auto made, make_certificates(run));
  auto& own = made.agent;
  return link_credentials{std::move(own.authority), std::move(own.certificate),
                          std::string{own.key.view()}};
}

expected<std::shared_ptr<link_security>>
encrypted_links(const link_credentials& x, std::string_view run) {
  credentials own{x.authority, x.certificate, secret_bytes{std::string{x.key}}};
  // An identity expects the other role: that of a driver expects an agent.
  TROUPE_TRY(auto identity, tls_identity::make(own, host_role::driver, run));
  return std::make_shared<tls_security>(std::move(identity));
}

} // namespace troupe::internal
