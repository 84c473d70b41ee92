#include "star_barrier.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace troupe::internal::bench {

namespace {

using message = std::array<char, 64>;

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error{std::string{"raw star barrier: cannot "} + what};
}

unique_fd new_socket() {
  unique_fd result{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (result.get() < 0)
    fail("make a socket");
  return result;
}

/// Calls *f* with the abstract address *name*.
template <class F>
int with_address(const std::string& name, F&& f) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  auto size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);
  auto length = offsetof(sockaddr_un, sun_path) + 1 + size;
  return f(reinterpret_cast<sockaddr*>(&address),
           static_cast<socklen_t>(length));
}

bool receive(const unique_fd& from, message& x) {
  return ::recv(from.get(), x.data(), x.size(), MSG_WAITALL)
         == static_cast<ssize_t>(x.size());
}

bool send(const unique_fd& to, const message& x) {
  return ::send(to.get(), x.data(), x.size(), MSG_NOSIGNAL)
         == static_cast<ssize_t>(x.size());
}

} // namespace

star_hub::star_hub(std::string name, int ranks) : listener_(new_socket()) {
  auto bound = with_address(name, [this](auto address, auto size) {
    return ::bind(listener_.get(), address, size);
  });
  if (bound != 0 || ::listen(listener_.get(), ranks) != 0)
    fail("listen");
  thread_ = std::thread{[this, ranks] { serve(ranks); }};
}

star_hub::~star_hub() {
  ::shutdown(listener_.get(), SHUT_RDWR); // if ranks never connected
  thread_.join();
}

void star_hub::serve(int ranks) {
  std::vector<unique_fd> links;
  for (int i = 0; i < ranks; ++i) {
    links.emplace_back(
      ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (links.back().get() < 0)
      return;
  }
  for (message x{};;) {
    for (auto& link : links)
      if (!receive(link, x))
        return;
    for (auto& link : links)
      if (!send(link, x))
        return;
  }
}

star_rank::star_rank(const std::string& name) : hub_(new_socket()) {
  auto connected = with_address(name, [this](auto address, auto size) {
    return ::connect(hub_.get(), address, size);
  });
  if (connected != 0)
    fail("connect");
}

void star_rank::barrier() {
  message x{};
  if (!send(hub_, x) || !receive(hub_, x))
    fail("reach the other ranks");
}

} // namespace troupe::internal::bench
