#include "troupe/callbacks/http/http_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <utility>

#include "troupe/callbacks/encoding/percent.hpp"
#include "troupe/runtime/process/internet_socket.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How long clients wait in the kernel's queue after a failed accept, which is
/// usually due to a lack of descriptors.
constexpr std::chrono::milliseconds accept_pause{100};

std::string text_of(const served_answer& x, bool with_body) {
  auto head = concat("HTTP/1.1 ", x.status, "\r\nContent-Type: ", x.type);
  if (!x.is_stream)
    head += concat("\r\nContent-Length: ", x.body.size());
  head += concat("\r\nConnection: close\r\n", x.fields, "\r\n");
  return with_body ? head + x.body : head;
}

/// The request whose head is *text*; nothing if it is not HTTP/1.
std::optional<served_request> parse_request(std::string_view text) {
  auto line = text.substr(0, text.find("\r\n"));
  auto first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last
      || !line.substr(last + 1).starts_with("HTTP/1."))
    return std::nullopt;
  served_request result;
  result.method = line.substr(0, first);
  auto target = line.substr(first + 1, last - first - 1);
  auto mark = std::min(target.find('?'), target.size());
  result.path = target.substr(0, mark);
  result.query = target.substr(std::min(mark + 1, target.size()));
  text.remove_prefix(line.size() + 2);
  while (!text.empty() && !text.starts_with("\r\n")) {
    auto field = text.substr(0, text.find("\r\n"));
    text.remove_prefix(std::min(field.size() + 2, text.size()));
    auto colon = field.find(':');
    if (colon != field.npos)
      result.fields[in_lower_case(field.substr(0, colon))] =
        without_blanks(field.substr(colon + 1), " \t");
  }
  return result;
}

/// As the tables of the kernel show it: "0100007F:1F90".
std::string table_text(const sockaddr_in& x) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "%08X:%04X", x.sin_addr.s_addr,
                static_cast<unsigned>(ntohs(x.sin_port)));
  return text.data();
}

/// Who owns the other end of a connection within this host; nothing if the
/// kernel does not say.
std::optional<uid_t> user_of_peer(const unique_fd& socket) {
  sockaddr_in own{}, peer{};
  socklen_t own_size = sizeof(own), peer_size = sizeof(peer);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size)
        != 0
      || ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer),
                       &peer_size)
           != 0)
    return std::nullopt;
  auto from = table_text(peer), to = table_text(own);
  // A client with an IPv6 socket is in the other table, as ::ffff:127.0.0.1.
  for (auto table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines{table};
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words{line};
      std::string slot, local, remote, state, queues, timer, retries;
      uid_t user = 0;
      words >> slot >> local >> remote >> state >> queues >> timer >> retries
        >> user;
      // Connections that no process has any more are listed as root's.
      if (words && local.ends_with(from) && remote.ends_with(to)
          && state == "01")
        return user;
    }
  }
  return std::nullopt;
}

} // namespace

bool same_secret(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size())
    return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(
      difference | (static_cast<unsigned char>(a[i] ^ b[i])));
  return difference == 0;
}

std::string_view served_request::field(const std::string& name) const {
  auto i = fields.find(name);
  return i == fields.end() ? std::string_view{} : std::string_view{i->second};
}

std::string served_request::parameter(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    auto part = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    auto equals = std::min(part.find('='), part.size());
    if (percent_decoded(part.substr(0, equals), plus_sign::blank) == name)
      return percent_decoded(part.substr(std::min(equals + 1, part.size())),
                             plus_sign::blank);
  }
  return {};
}

served_answer plain_answer(std::string status) {
  served_answer result;
  result.body = status + "\n";
  result.status = std::move(status);
  return result;
}

expected<http_server> http_server::listen(options how, handler answer) {
  in_addr number{};
  if (::inet_pton(AF_INET, how.address.c_str(), &number) != 1)
    return failure(ec::invalid_config,
                   "'" + how.address + "' is not an IPv4 address to serve at");
  TROUPE_TRY(auto at, resolve(how.address, how.port, host_kind::number));
  auto listener = listen_at(
    at.front(), 16, concat("cannot serve at ", how.address, ":", how.port));
  if (!listener)
    return failure(ec::conflict, std::move(listener.error().message));
  auto where = concat(how.address, ":", listener->port);
  auto loopback = ntohl(number.s_addr) >> 24 == 127;
  return http_server{std::move(listener->socket), std::move(where), loopback,
                     std::move(how), std::move(answer)};
}

http_server::http_server(unique_fd listener, std::string address, bool loopback,
                         options how, handler answer)
  : listener_(std::move(listener)), address_(std::move(address)),
    loopback_(loopback), options_(std::move(how)), answer_(std::move(answer)) {}

expected<void> http_server::serve(std::span<pollfd> others,
                                  clock::time_point until) {
  std::vector<pollfd> waits{others.begin(), others.end()};
  for (auto& x : connections_) {
    // A stream that has nothing to send shows when its client leaves.
    auto events = x.output.empty() ? POLLIN : POLLIN | POLLOUT;
    if (!x.query && !x.output.empty())
      events = POLLOUT;
    waits.push_back({x.socket.get(), static_cast<short>(events), 0});
    until = std::min(until, x.deadline.next());
  }
  // Further clients wait in the kernel's queue.
  auto listens =
    clock::now() >= next_accept_ && connections_.size() < max_connections;
  if (listens)
    waits.push_back({listener_.get(), POLLIN, 0});
  else if (connections_.size() < max_connections)
    until = std::min(until, next_accept_);
  if (wait_until_ready(waits, until) == wait_outcome::failed)
    return system_failure(ec::storage, "cannot wait for clients");
  for (std::size_t i = 0; i < others.size(); ++i)
    others[i].revents = waits[i].revents;
  std::vector<connection> rest;
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    auto& x = connections_[i];
    auto ready = waits[others.size() + i].revents;
    auto stays = ready == 0 || handle(x, ready);
    if (stays && clock::now() < x.deadline.next())
      rest.push_back(std::move(x));
  }
  connections_ = std::move(rest);
  if (listens && waits.back().revents != 0)
    accept_one();
  return {};
}

void http_server::accept_one() {
  unique_fd socket{
    ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
  if (!socket) {
    if (!is_temporary(errno))
      next_accept_ = clock::now() + accept_pause;
    return;
  }
  if (options_.own_user_only)
    if (auto user = user_of_peer(socket); user && *user != ::geteuid())
      return;
  connection x;
  x.socket = std::move(socket);
  x.deadline =
    client_deadline{clock::now(), options_.patience, x.query.has_value()};
  x.id = ++last_id_;
  connections_.push_back(std::move(x));
}

bool http_server::handle(connection& x, short ready) {
  if ((ready & ~POLLOUT) != 0 && (x.query || x.output.empty())) {
    char buffer[4096];
    auto n = ::recv(x.socket.get(), buffer, sizeof(buffer), 0);
    if (n <= 0)
      return n < 0 && is_temporary(errno);
    if (x.answered || x.query)
      return true;
    x.input.append(buffer, static_cast<std::size_t>(n));
    if (x.input.find("\r\n\r\n") != x.input.npos)
      x.output = answer_to(x);
    else if (x.input.size() > max_request)
      x.output =
        text_of(plain_answer("431 Request Header Fields Too Large"), true);
    else
      return true;
    x.deadline =
      client_deadline{clock::now(), options_.patience, x.query.has_value()};
  }
  return send_rest(x);
}

bool http_server::send_rest(connection& x) {
  if (x.output.empty())
    return true;
  auto n =
    ::send(x.socket.get(), x.output.data(), x.output.size(), MSG_NOSIGNAL);
  if (n < 0)
    return is_temporary(errno);
  x.output.erase(0, static_cast<std::size_t>(n));
  if (!x.output.empty()) {
    x.deadline.extend(clock::now());
    return true;
  }
  if (x.query) {
    x.deadline = client_deadline::never();
    return true;
  }
  // Closing with bytes unread would turn the reply into a reset.
  x.answered = true;
  ::shutdown(x.socket.get(), SHUT_WR);
  return true;
}

// An attacker can map any name to this host, but cannot choose its address.
bool http_server::is_for_us(const served_request& x) const {
  auto host = in_lower_case(x.field("host"));
  if (!host.starts_with('['))
    host.resize(std::min(host.find(':'), host.size()));
  in_addr address{};
  return !loopback_ || host.empty() || host == "localhost"
         || host.starts_with('[')
         || ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

std::string http_server::answer_to(connection& x) {
  auto refused = [](const char* status) {
    return text_of(plain_answer(status), true);
  };
  auto end = x.input.find("\r\n\r\n");
  if (end > max_request)
    return refused("431 Request Header Fields Too Large");
  auto request = parse_request(std::string_view{x.input}.substr(0, end + 2));
  if (!request)
    return refused("400 Bad Request");
  if (!is_for_us(*request))
    return refused("421 Misdirected Request");
  try {
    auto answer = answer_(*request);
    if (answer.is_stream && stream_count() >= max_streams)
      return refused("503 Service Unavailable");
    if (answer.is_stream)
      x.query = request->query;
    return text_of(answer, request->method != "HEAD");
  } catch (const std::exception&) {
    return refused("500 Internal Server Error");
  }
}

std::size_t http_server::stream_count() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
    connections_, [](auto& x) { return x.query.has_value(); }));
}

bool http_server::has_streams() const noexcept {
  return stream_count() > 0;
}

bool http_server::is_open(std::uint64_t id) const noexcept {
  return std::ranges::count(connections_, id, &connection::id) > 0;
}

std::vector<http_server::stream> http_server::idle_streams() const {
  std::vector<stream> result;
  for (auto& x : connections_)
    if (x.query && x.output.empty())
      result.push_back({x.id, *x.query});
  return result;
}

void http_server::send(std::uint64_t id, std::string_view bytes) {
  auto i = std::ranges::find(connections_, id, &connection::id);
  if (i == connections_.end() || !i->query)
    return;
  i->output += bytes;
  i->deadline = client_deadline{clock::now(), options_.patience, true};
  if (!send_rest(*i))
    i->deadline = {}; // The next round drops it.
}

} // namespace troupe::internal
