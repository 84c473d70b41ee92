#include "troupe/trainers/ring/link_security.hpp"

#include <utility>

namespace troupe::internal {

namespace {

class plain_handshake : public link_handshake {
public:
  explicit plain_handshake(unique_fd socket)
    : fd_(socket.get()),
      link_(std::make_unique<socket_link>(std::move(socket))) {}

  progress advance() override { return progress::done; }
  std::string problem() const override { return {}; }
  int socket() const noexcept override { return fd_; }
  std::unique_ptr<byte_link> take() override { return std::move(link_); }

private:
  int fd_;
  std::unique_ptr<byte_link> link_;
};

class plain_security : public link_security {
public:
  bool encrypts() const noexcept override { return false; }

  expected<std::unique_ptr<link_handshake>> begin(unique_fd socket,
                                                  bool) override {
    return std::make_unique<plain_handshake>(std::move(socket));
  }
};

} // namespace

std::shared_ptr<link_security> plain_links() {
  return std::make_shared<plain_security>();
}

} // namespace troupe::internal
