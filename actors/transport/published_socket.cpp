#include "troupe/actors/transport/published_socket.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <caf/io/abstract_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/network/acceptor_impl.hpp>

#include "troupe/actors/transport/framed_scribe.hpp"
#include "troupe/actors/transport/unix_endpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Accepts connections on a Unix socket, from processes of this user only.
class unix_doorman : public caf::io::doorman {
public:
  using multiplexer = framed_scribe::multiplexer;

  /// Takes ownership of *socket*, which listens. *slot* takes the role of the
  /// port in CAF: the key of the published actor.
  unix_doorman(multiplexer& loop, int socket, std::uint16_t slot,
               refusal_handler on_refusal)
    : doorman(caf::io::network::accept_hdl_from_socket(socket)),
      acceptor_(loop, socket), slot_(slot), on_refusal_(std::move(on_refusal)) {
  }

  bool new_connection() override {
    auto socket = unique_fd{acceptor_.accepted_socket()};
    if (detached())
      return false;
    if (!is_own_peer(socket.get())) {
      if (on_refusal_)
        on_refusal_("a connection of another user is refused");
      return true;
    }
    auto& loop = acceptor_.backend();
    auto scribe = caf::make_counted<framed_scribe>(
      loop, std::make_unique<socket_link>(std::move(socket)),
      frame_guard::side::server, on_refusal_);
    auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    return doorman::new_connection(&loop, handle);
  }

  void graceful_shutdown() override {
    auto guard = caf::intrusive_ptr{this};
    acceptor_.graceful_shutdown();
    detach(&acceptor_.backend(), false);
  }

  void launch() override { acceptor_.start(this); }
  std::string addr() const override { return {}; }
  std::uint16_t port() const override { return slot_; }
  void add_to_loop() override { acceptor_.activate(this); }

  void remove_from_loop() override {
    acceptor_.passivate();
    // As for a scribe: nothing else releases a doorman that closes at once.
    if (acceptor_.eventbf() == 0)
      acceptor_.removed_from_loop(caf::io::network::operation::read);
  }

private:
  /// Takes one connection at a time, closed on exec.
  class accept_policy {
  public:
    bool try_accept(int& result, int socket) {
      result =
        ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (result < 0 && (errno == EMFILE || errno == ENFILE)) {
        reserve_.reset();
        reserve_.reset(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC));
        reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      }
      return result >= 0;
    }

  private:
    // Released for a moment when the process has no descriptor left, to accept
    // and close a connection that would otherwise keep the event loop spinning.
    unique_fd reserve_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  };

  caf::io::network::acceptor_impl<accept_policy> acceptor_;
  std::uint16_t slot_;
  refusal_handler on_refusal_;
};

} // namespace

published_socket::published_socket(publication published, fs::path path)
  : published_(std::move(published)), path_(std::move(path)) {
  (void) ::lstat(path_.c_str(), &file_);
}

published_socket::published_socket(published_socket&& other) noexcept
  : published_(std::move(other.published_)),
    path_(std::exchange(other.path_, {})), file_(other.file_),
    owner_(other.owner_) {}

published_socket&
published_socket::operator=(published_socket&& other) noexcept {
  if (this != &other) {
    remove();
    published_ = std::move(other.published_);
    path_ = std::exchange(other.path_, {});
    file_ = other.file_;
    owner_ = other.owner_;
  }
  return *this;
}

published_socket::~published_socket() {
  remove();
}

void published_socket::remove() noexcept {
  struct stat found {};
  if (path_.empty() || !owner_.is_here() || ::lstat(path_.c_str(), &found) != 0
      || !is_same_file(file_, found))
    return;
  boost::system::error_code ignored;
  fs::remove(path_, ignored);
}

expected<published_socket>
internal::publish_actor(caf::actor_system& system, caf::strong_actor_ptr whom,
                        std::set<std::string> interface, const fs::path& path,
                        refusal_handler on_refusal) {
  if (!whom)
    return failure(ec::invalid_argument,
                   "no actor to publish at " + path.string());
  // To remove the socket, wherever the process is by then.
  TROUPE_TRY(auto place, absolute_path(path));
  TROUPE_TRY(auto socket, listen_at(path));
  auto& loop =
    static_cast<unix_doorman::multiplexer&>(system.middleman().backend());
  auto make = [&](std::uint16_t slot) -> caf::io::doorman_ptr {
    return caf::make_counted<unix_doorman>(loop, socket.release(), slot,
                                           on_refusal);
  };
  auto published =
    publication::begin(system, std::move(whom), std::move(interface), make);
  if (!published) {
    boost::system::error_code ignored;
    fs::remove(path, ignored);
    return tl::unexpected{std::move(published.error())};
  }
  return published_socket{std::move(*published), std::move(place)};
}

} // namespace troupe
