#include "troupe/callbacks/prometheus/page_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <exception>
#include <system_error>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

std::string reply(const char* status, const std::string& type,
                  const std::string& body, bool with_body = true) {
  auto head =
    concat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
           "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n");
  if (std::string_view{status}.starts_with("405"))
    head += "Allow: GET, HEAD\r\n";
  return head + "\r\n" + (with_body ? body : std::string{});
}

std::string refusal(const char* status) {
  return reply(status, "text/plain", std::string{status} + "\n");
}

bool would_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/// How long clients wait in the kernel's queue after a failed accept, which is
/// usually due to a lack of descriptors.
constexpr std::chrono::milliseconds accept_pause{100};

std::string lowered(std::string_view x) {
  std::string result{x};
  for (auto& c : result)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// The `Host` of *request*, in lower case and without its port; empty: none.
std::string asked_host(const std::string& request) {
  auto head = lowered(request.substr(0, request.find("\r\n\r\n")));
  auto at = head.find("\r\nhost:");
  if (at == head.npos)
    return {};
  at = head.find_first_not_of(" \t", at + 7);
  auto host = head.substr(std::min(at, head.size()));
  host.resize(std::min(host.find_first_of(" \t\r"), host.size()));
  if (!host.starts_with('['))
    host.resize(std::min(host.find(':'), host.size()));
  return host;
}

} // namespace

expected<std::unique_ptr<page_server>>
page_server::start(const std::string& address, std::uint16_t port, page what) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1)
    return failure(ec::invalid_config,
                   "'" + address + "' is not an IPv4 address to serve at");
  unique_fd listener{
    ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  unique_fd stop{::eventfd(0, EFD_CLOEXEC)};
  auto where = concat(address, ":", port);
  const int on = 1;
  auto* generic = reinterpret_cast<sockaddr*>(&name);
  socklen_t size = sizeof(name);
  if (!listener || !stop
      || ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on))
           != 0
      || ::bind(listener.get(), generic, size) != 0
      || ::listen(listener.get(), 16) != 0
      || ::getsockname(listener.get(), generic, &size) != 0)
    return system_failure(ec::conflict, "cannot serve at " + where);
  where = concat(address, ":", ntohs(name.sin_port));
  auto loopback = ntohl(name.sin_addr.s_addr) >> 24 == 127;
  try {
    return std::unique_ptr<page_server>{
      new page_server{std::move(listener), std::move(stop), std::move(where),
                      loopback, std::move(what)}};
  } catch (const std::system_error& x) {
    return failure(ec::spawn,
                   std::string{"cannot start a thread to serve the page: "}
                     + x.what());
  }
}

page_server::page_server(unique_fd listener, unique_fd stop,
                         std::string address, bool loopback, page what)
  : listener_(std::move(listener)), stop_(std::move(stop)),
    address_(std::move(address)), loopback_(loopback), page_(std::move(what)),
    thread_([this] {
      try {
        run();
      } catch (const std::exception&) {
        // No memory for a connection: the server ends, the run continues.
      }
    }) {}

page_server::~page_server() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void page_server::run() {
  for (;;) {
    std::vector<pollfd> waits{{stop_.get(), POLLIN, 0}};
    auto limit = clock::time_point::max();
    for (auto& x : connections_) {
      auto events = x.output.empty() ? POLLIN : POLLOUT;
      waits.push_back({x.socket.get(), static_cast<short>(events), 0});
      limit = std::min(limit, x.deadline);
    }
    // Further clients wait in the kernel's queue.
    if (clock::now() < next_accept_)
      limit = std::min(limit, next_accept_);
    else if (connections_.size() < max_connections)
      waits.push_back({listener_.get(), POLLIN, 0});
    auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(limit - clock::now(), clock::duration{0}));
    auto timeout =
      limit == clock::time_point::max() ? -1 : static_cast<int>(left.count());
    if (::poll(waits.data(), waits.size(), timeout) < 0 && errno != EINTR)
      return;
    if (waits.front().revents != 0)
      return;
    std::vector<connection> rest;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      auto& x = connections_[i];
      auto stays = waits[i + 1].revents == 0 || serve(x);
      if (stays && clock::now() < x.deadline)
        rest.push_back(std::move(x));
    }
    auto asked =
      waits.size() > connections_.size() + 1 && waits.back().revents != 0;
    connections_ = std::move(rest);
    if (asked)
      accept_one();
  }
}

void page_server::accept_one() {
  unique_fd socket{
    ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
  if (socket)
    connections_.push_back(
      {std::move(socket), clock::now() + page_.patience, {}, {}, false});
  else if (!would_wait())
    next_accept_ = clock::now() + accept_pause;
}

bool page_server::serve(connection& x) {
  if (x.output.empty()) {
    char buffer[4096];
    auto n = ::recv(x.socket.get(), buffer, sizeof(buffer), 0);
    if (n <= 0)
      return n < 0 && would_wait();
    if (x.answered)
      return true;
    x.input.append(buffer, static_cast<std::size_t>(n));
    if (x.input.find("\r\n\r\n") != x.input.npos)
      x.output = reply_to(x.input);
    else if (x.input.size() > max_request)
      x.output = refusal("431 Request Header Fields Too Large");
    else
      return true;
    x.deadline = clock::now() + page_.patience;
  }
  auto n =
    ::send(x.socket.get(), x.output.data(), x.output.size(), MSG_NOSIGNAL);
  if (n < 0)
    return would_wait();
  x.output.erase(0, static_cast<std::size_t>(n));
  if (!x.output.empty())
    return true;
  // Closing with bytes unread would turn the reply into a reset.
  x.answered = true;
  ::shutdown(x.socket.get(), SHUT_WR);
  return true;
}

// An attacker can map any name to this host, but cannot choose its address.
bool page_server::is_for_us(const std::string& request) const {
  auto host = asked_host(request);
  in_addr address{};
  return !loopback_ || host.empty() || host == "localhost"
         || host.starts_with('[')
         || ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

std::string page_server::reply_to(const std::string& request) const {
  if (request.find("\r\n\r\n") > max_request)
    return refusal("431 Request Header Fields Too Large");
  auto line = request.substr(0, request.find("\r\n"));
  auto first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last
      || !line.substr(last + 1).starts_with("HTTP/1."))
    return refusal("400 Bad Request");
  auto method = line.substr(0, first);
  auto path = line.substr(first + 1, last - first - 1);
  if (!is_for_us(request))
    return refusal("421 Misdirected Request");
  if (method != "GET" && method != "HEAD")
    return refusal("405 Method Not Allowed");
  if (path.substr(0, path.find('?')) != page_.path)
    return refusal("404 Not Found");
  try {
    return reply("200 OK", page_.content_type, page_.make(), method == "GET");
  } catch (const std::exception&) {
    return refusal("500 Internal Server Error");
  }
}

} // namespace troupe::internal
