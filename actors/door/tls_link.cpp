#include "troupe/actors/door/tls_link.hpp"

#include <utility>

namespace troupe::internal {

namespace {

class tls_link : public byte_link {
public:
  tls_link(std::unique_ptr<tls_channel> channel, bool is_direct)
    : channel_(std::move(channel)), is_direct_(is_direct) {}

  std::optional<std::size_t> receive(std::span<std::byte> buffer) override {
    return moved(channel_->read(buffer));
  }

  std::optional<std::size_t> send(std::span<const std::byte> bytes) override {
    return moved(channel_->write(bytes));
  }

  void finish() noexcept override { channel_->finish(); }
  bool holds_data() const noexcept override { return true; }

  bool was_closed() const noexcept override {
    return is_direct_ && channel_->failure().cause == channel_fault::closed;
  }

  int socket() const noexcept override { return channel_->socket(); }

  int release_socket() noexcept override { return channel_->release_socket(); }

private:
  static std::optional<std::size_t> moved(const tls_channel::outcome& x) {
    if (x.what == tls_channel::progress::failed)
      return std::nullopt;
    return x.size; // 0 if it would have to wait.
  }

  std::unique_ptr<tls_channel> channel_;
  const bool is_direct_;
};

} // namespace

std::unique_ptr<byte_link> make_link(std::unique_ptr<tls_channel> channel,
                                     bool is_direct) {
  return std::make_unique<tls_link>(std::move(channel), is_direct);
}

} // namespace troupe::internal
