#include "troupe/actors/transport/published_socket.hpp"

#include <utility>

#include <caf/io/middleman.hpp>

#include "troupe/actors/transport/unix_doorman.hpp"
#include "troupe/actors/transport/unix_endpoint.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe {

published_socket::published_socket(publication published, fs::path path,
                                   door_ptr door)
  : published_(std::move(published)), path_(std::move(path)),
    door_(std::move(door)) {
  (void) ::lstat(path_.c_str(), &file_);
}

published_socket::published_socket(published_socket&& other) noexcept
  : published_(std::move(other.published_)),
    path_(std::exchange(other.path_, {})), file_(other.file_),
    door_(other.door_) {}

published_socket&
published_socket::operator=(published_socket&& other) noexcept {
  if (this != &other) {
    remove();
    published_ = std::move(other.published_);
    path_ = std::exchange(other.path_, {});
    file_ = other.file_;
    door_ = other.door_;
  }
  return *this;
}

published_socket::~published_socket() {
  remove();
}

void published_socket::remove() noexcept {
  struct stat found {};
  if (path_.empty() || ::lstat(path_.c_str(), &found) != 0
      || !is_same_file(file_, found))
    return;
  boost::system::error_code ignored;
  fs::remove(path_, ignored);
}

expected<published_socket> publish_actor(caf::actor_system& system,
                                         caf::strong_actor_ptr whom,
                                         std::set<std::string> interface,
                                         const fs::path& path,
                                         refusal_handler on_refusal) {
  if (!whom)
    return failure(ec::invalid_argument,
                   "no actor to publish at " + path.string());
  auto socket = listen_at(path);
  if (!socket)
    return tl::unexpected{std::move(socket.error())};
  auto shared = std::make_shared<door>();
  shared->on_refusal = std::move(on_refusal);
  auto& loop =
    static_cast<unix_doorman::multiplexer&>(system.middleman().backend());
  auto make = [&](std::uint16_t slot) -> caf::io::doorman_ptr {
    return caf::make_counted<unix_doorman>(loop, socket->release(), slot,
                                           shared);
  };
  auto published =
    publication::begin(system, std::move(whom), std::move(interface), make);
  if (!published) {
    boost::system::error_code ignored;
    fs::remove(path, ignored);
    return tl::unexpected{std::move(published.error())};
  }
  return published_socket{std::move(*published), path, std::move(shared)};
}

} // namespace troupe
