#include "troupe/actors/door/door.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "troupe/runtime/process/internet_socket.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/process/unshared_fd.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using door_clock = std::chrono::steady_clock;

/// Holds the agents of a thousand hosts that connect at once.
constexpr int door_backlog = 1024;

/// Connections accepted in a row before handshakes under way continue.
constexpr int max_accepts = 16;

/// The first byte of a greeting.
constexpr std::byte first_connection{'T'};
constexpr std::byte next_connection{'R'};

/// How long clients wait in the kernel's queue when no descriptor or no memory
/// is left.
constexpr std::chrono::milliseconds pause_of_accepts{100};

struct door_port {
  unshared_fd listener;
  std::uint16_t number = 0;
};

/// One socket for IPv4 and IPv6, or IPv4 alone where there is no IPv6.
expected<door_port> listen_on_all(std::uint16_t port) {
  auto what = concat("the run cannot listen on TCP port ", port);
  const fork_pause pause;
  auto result = listen_at(endpoint::any(AF_INET6, port), door_backlog, what);
  if (!result && result.error().code != ec::conflict)
    result = listen_at(endpoint::any(AF_INET, port), door_backlog, what);
  return std::move(result).map([&pause](listening_socket x) {
    return door_port{{std::move(x.socket), pause}, x.port};
  });
}

std::string address_of_client(int socket) {
  auto result = endpoint::remote(socket);
  return result ? result->text() : "unknown address";
}

} // namespace

std::array<std::byte, door_greeting_size> encode(const door_greeting& x) {
  std::array<std::byte, door_greeting_size> result;
  result.front() = x.resumes ? next_connection : first_connection;
  auto rest = std::ranges::copy(x.link, result.begin() + 1).out;
  std::ranges::copy(x.sent_from, rest);
  return result;
}

/// The port and the connections that have not been handed over yet. Lives on
/// the door's thread.
class door::acceptor {
public:
  acceptor(door_args args, unshared_fd listener, int stop)
    : args_(std::move(args)), listener_(std::move(listener)), stop_(stop) {}

  void run() {
    for (;;)
      try {
        return serve();
      } catch (const std::exception& problem) {
        // No memory for a connection, or a handler that throws. Clients that
        // were shaking hands come again.
        pending_.clear();
        try {
          pause(problem.what());
        } catch (const std::exception&) { // No memory for a message either.
        }
        pollfd stop{stop_, POLLIN, 0};
        if (::poll(&stop, 1, static_cast<int>(pause_of_accepts.count())) > 0)
          return;
      }
  }

private:
  struct connection {
    std::unique_ptr<tls_channel> channel; // null: gone
    std::string address;
    door_clock::time_point deadline;
    short events = POLLIN;
    std::array<std::byte, door_greeting_size> raw_greeting;
    std::size_t greeted = 0; ///< Bytes of that.
    door_greeting greeting;
  };

  /// Until it is asked to stop.
  void serve() {
    for (;;) {
      auto waits = collect_waits();
      wait_until_ready(waits, next_deadline());
      if (waits.front().revents != 0)
        return;
      auto asked = is_accepting_ && waits.back().revents != 0;
      for (std::size_t i = 0; i < pending_.size(); ++i)
        if (waits[i + 1].revents != 0)
          advance(pending_[i]);
      refuse_late();
      std::erase_if(pending_, [](const connection& x) { return !x.channel; });
      if (asked)
        accept_some();
    }
  }

  std::vector<pollfd> collect_waits() {
    std::vector<pollfd> result{{stop_, POLLIN, 0}};
    for (auto& x : pending_)
      result.push_back({x.channel->socket(), x.events, 0});
    is_accepting_ = door_clock::now() >= next_accept_;
    if (is_accepting_)
      result.push_back({listener_.get(), POLLIN, 0});
    return result;
  }

  /// When something must be done without an event.
  door_clock::time_point next_deadline() const {
    auto next = is_accepting_ ? door_clock::time_point::max() : next_accept_;
    for (auto& x : pending_)
      next = std::min(next, x.deadline);
    return next;
  }

  void refuse(connection& x, channel_fault cause, std::string text,
              bool has_left = false) {
    auto channel = std::move(x.channel);
    refuse(cause, std::move(x.address), std::move(text), has_left);
  }

  void refuse(channel_fault cause, std::string address, std::string text,
              bool has_left = false) {
    if (!has_left)
      ++refused_;
    if (args_.on_refusal)
      args_.on_refusal(
        {cause, std::move(address), std::move(text), refused_, has_left});
  }

  void refuse_late() {
    auto now = door_clock::now();
    for (auto& x : pending_)
      if (x.channel && x.deadline <= now)
        refuse(x, channel_fault::silent,
               "no handshake within " + duration_text(args_.handshake_limit));
  }

  /// Continues with *x*, whose socket is ready.
  void advance(connection& x) {
    switch (next_step(x)) {
      case tls_channel::progress::wants_read:
        x.events = POLLIN;
        break;
      case tls_channel::progress::wants_write:
        x.events = POLLOUT;
        break;
      case tls_channel::progress::failed: {
        auto why = x.channel->failure();
        auto has_ended = why.cause == channel_fault::closed
                         || why.cause == channel_fault::lost;
        auto has_left = has_ended && x.greeted < x.raw_greeting.size();
        refuse(x, why.cause, std::move(why.text), has_left);
        break;
      }
      case tls_channel::progress::done:
        if (x.channel)
          args_.on_client(std::move(x.channel), x.greeting);
        break;
    }
  }

  /// Goes as far as the socket allows. Done also if *x* was refused.
  tls_channel::progress next_step(connection& x) {
    if (!x.channel->is_established())
      if (auto result = x.channel->shake_hands();
          result != tls_channel::progress::done)
        return result;
    while (x.greeted < x.raw_greeting.size()) {
      auto rest = std::span{x.raw_greeting}.subspan(x.greeted);
      auto result = x.channel->read(rest);
      if (result.what != tls_channel::progress::done)
        return result.what;
      x.greeted += result.size;
      auto kind = x.raw_greeting.front();
      if (kind != first_connection && kind != next_connection) {
        refuse(x, channel_fault::damaged,
               "it speaks another version of the run's protocol");
        return tls_channel::progress::done;
      }
    }
    return answer(x);
  }

  /// Answers the greeting of *x*, which is whole.
  tls_channel::progress answer(connection& x) {
    x.greeting.resumes = x.raw_greeting.front() == next_connection;
    auto from = x.raw_greeting.begin() + 1;
    std::copy_n(from, x.greeting.link.size(), x.greeting.link.begin());
    from += x.greeting.link.size();
    std::copy_n(from, x.greeting.sent_from.size(),
                x.greeting.sent_from.begin());
    if (!x.greeting.resumes
        || (args_.has_link && args_.has_link(x.greeting.link)))
      return x.channel->write({&door_welcome, 1}).what;
    x.channel->write({&door_farewell, 1});
    x.channel->finish();
    refuse(x, channel_fault::lost,
           "it continues a connection that is given up");
    return tls_channel::progress::done;
  }

  void accept_some() {
    for (int i = 0; i < max_accepts; ++i) {
      auto socket = accept_one();
      if (!socket && would_block(errno))
        return;
      if (!socket && is_short_of_resources(errno))
        return pause(std::system_category().message(errno));
      if (!socket)
        continue; // The client has left already.
      enter(std::move(socket));
      is_short_ = false;
    }
  }

  /// `errno` says why there is none.
  unshared_fd accept_one() const {
    const fork_pause pause;
    unique_fd socket{::accept4(listener_.get(), nullptr, nullptr,
                               SOCK_NONBLOCK | SOCK_CLOEXEC)};
    return {std::move(socket), pause};
  }

  static bool is_short_of_resources(int problem) {
    return problem == EMFILE || problem == ENFILE || problem == ENOBUFS
           || problem == ENOMEM;
  }

  /// The client stays in the kernel's queue, and the port stays readable: to
  /// ask again at once would take a core.
  void pause(const std::string& problem) {
    next_accept_ = door_clock::now() + pause_of_accepts;
    if (!std::exchange(is_short_, true)) // One event for each shortage.
      refuse(channel_fault::lost, std::string{},
             "connections wait: " + problem);
  }

  void enter(unshared_fd socket) {
    auto address = address_of_client(socket.get());
    auto channel = tls_channel::make(args_.own, std::move(socket),
                                     tls_channel::side::server, args_.link);
    if (!channel)
      return refuse(channel_fault::lost, std::move(address),
                    std::move(channel.error().message));
    if (pending_.size() >= args_.max_pending)
      make_room();
    pending_.push_back({std::move(*channel), std::move(address),
                        door_clock::now() + args_.handshake_limit});
  }

  void make_room() {
    std::vector<unknown_caller> all;
    for (auto& x : pending_)
      all.push_back({x.address, !x.channel->has_heard()});
    auto leaves =
      pending_.begin() + static_cast<std::ptrdiff_t>(choose_leaver(all));
    refuse(*leaves, channel_fault::crowded,
           concat("more than ", args_.max_pending,
                  " connections without a handshake"));
    pending_.erase(leaves);
  }

  door_args args_;
  unshared_fd listener_;
  int stop_;
  std::vector<connection> pending_; // the oldest first
  door_clock::time_point next_accept_ = door_clock::time_point::min();
  bool is_accepting_ = true;
  bool is_short_ = false; ///< The latest accept found no descriptor.
  std::uint64_t refused_ = 0;
};

expected<owned_ptr<door>> door::open(door_args args) {
  TROUPE_TRY(auto port, listen_on_all(args.port));
  owned_ptr<door> result{new door};
  result->port_ = port.number;
  if (!result->stop_)
    return system_failure(ec::spawn, "the run's port needs a descriptor");
  result->acceptor_ = std::make_unique<acceptor>(
    std::move(args), std::move(port.listener), result->stop_.fd());
  TROUPE_TRY(
    result->thread_,
    start_thread([acceptor = result->acceptor_.get()] { acceptor->run(); }));
  return result;
}

door::~door() {
  stop_.notify();
  if (thread_.joinable())
    thread_.join();
}

} // namespace troupe::internal
