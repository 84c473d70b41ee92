#include "troupe/trainers/ring/join_ring.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <optional>
#include <system_error>
#include <utility>

#include <sys/socket.h>

#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/process/internet_socket.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"
#include "troupe/trainers/ring/ring_greeting.hpp"

namespace troupe::internal {

namespace {

using join_clock = std::chrono::steady_clock;

/// Visitors that are held at a time; strangers among them for `greeting_limit`.
constexpr std::size_t max_visitors = 16;
constexpr std::chrono::seconds greeting_limit{5};

/// Connections that are taken before those that are there get their turn.
constexpr int max_accepts = 4;

/// Between two calls of a neighbor that does not answer.
constexpr std::chrono::milliseconds call_pause{200};

/// One call of a neighbor.
constexpr std::chrono::seconds call_limit{5};

expected<endpoint> endpoint_at(const std::string& address, std::uint16_t port) {
  auto found = resolve(address, port, host_kind::number);
  if (!found)
    return failure(ec::invalid_config,
                   concat("the network address '", address,
                          "' is not an IPv4 or IPv6 address"));
  return found->front();
}

/// The two connections of a leader, while they are being made.
class ring_joiner {
public:
  ring_joiner(const ring_port& port, const std::vector<ring_leader>& leaders,
              std::size_t index, const join_ring_args& args)
    : port_(port), leaders_(leaders), index_(index), args_(args) {}

  expected<ring_links> run() {
    while (!links_.next || !links_.previous) {
      if (join_clock::now() >= end_)
        return failure(ec::timeout, late());
      begin_call();
      if (wait_for_events())
        return failure(ec::stopped, "it was asked to stop");
      advance_call();
      take_visitors();
      advance_visitors();
    }
    return std::move(links_);
  }

private:
  const ring_leader& next() const {
    return leaders_[(index_ + 1) % leaders_.size()];
  }

  std::size_t previous_index() const {
    return (index_ + leaders_.size() - 1) % leaders_.size();
  }

  std::string late() const {
    auto limit = " within " + duration_text(args_.limit);
    if (!links_.next)
      return concat(to_string(next().host), " could not be reached at ",
                    next().address, " port ", next().port, limit, ": ", cause_);
    auto text =
      concat(to_string(leaders_[previous_index()].host), " did not connect to ",
             port_.address(), " port ", port_.port(), limit);
    if (!refused_.empty())
      text += concat("; another connection was refused: ", refused_);
    return text;
  }

  // -- to the next host -------------------------------------------------------

  void begin_call() {
    if (links_.next || calling_ || call_ || join_clock::now() < next_call_)
      return;
    next_call_ = join_clock::now() + call_pause;
    auto to = endpoint_at(next().address, next().port);
    if (!to) {
      cause_ = to.error().message;
      return;
    }
    call_end_ = join_clock::now() + call_limit;
    auto socket = begin_connect(*to);
    if (!socket)
      return drop_call(std::system_category().message(socket.error()));
    calling_ = std::move(*socket);
  }

  void drop_call(std::string cause) {
    cause_ = std::move(cause);
    calling_.reset();
    call_.reset();
  }

  void advance_call() {
    if (calling_ && (call_ready_ & (POLLOUT | POLLERR | POLLHUP)) != 0) {
      if (auto problem = connect_error(calling_.get()); problem != 0)
        return drop_call(std::system_category().message(problem));
      auto handshake = args_.security->begin(std::move(calling_), false);
      if (!handshake)
        return drop_call(handshake.error().message);
      call_.emplace(
        std::move(*handshake), true, greeting_of(next().token, index_),
        greeting_of(port_.token(), (index_ + 1) % leaders_.size()), call_end_);
    }
    if (call_ && !call_->advance())
      return drop_call(call_->problem);
    if (call_ && call_->is_greeted()) {
      links_.next = call_->take(args_.lost_after);
      call_.reset();
    }
    if ((calling_ || call_) && join_clock::now() >= call_end_)
      drop_call("no answer");
  }

  // -- from the previous host -------------------------------------------------

  void take_visitors() {
    for (int i = 0; i < max_accepts && !links_.previous
                    && join_clock::now() >= next_visit_;
         ++i) {
      unique_fd socket{::accept4(port_.socket(), nullptr, nullptr,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC)};
      if (!socket) {
        // Without descriptors it stays in the queue, and the port readable.
        if (!would_block(errno))
          next_visit_ = join_clock::now() + call_pause;
        return;
      }
      auto caller = endpoint::remote(socket.get());
      auto handshake = args_.security->begin(std::move(socket), true);
      if (!handshake)
        continue;
      if (visitors_.size() == max_visitors && !drop_visitor())
        continue;
      visitors_.emplace_back(
        std::move(*handshake), false,
        greeting_of(leaders_[previous_index()].token, index_),
        greeting_of(port_.token(), previous_index()),
        join_clock::now() + greeting_limit);
      if (caller)
        visitors_.back().address = caller->text();
    }
  }

  /// Makes room. Once the neighbor is known it is never dropped: it may not
  /// call again.
  bool drop_visitor() {
    std::vector<unknown_caller> strangers;
    std::vector<std::list<greeted_connection>::iterator> places;
    for (auto i = visitors_.begin(); i != visitors_.end(); ++i)
      if (!i->is_known()) {
        strangers.push_back({i->address, i->is_silent()});
        places.push_back(i);
      }
    if (strangers.empty())
      return false;
    visitors_.erase(places[choose_leaver(strangers)]);
    return true;
  }

  /// A known one may be late: a caller that was stopped takes the connection
  /// for whole once it reads the answer. It stays until it ends, or the set-up
  /// does.
  void advance_visitors() {
    for (auto i = visitors_.begin(); i != visitors_.end();) {
      if (!i->advance()) {
        refused_ = i->problem;
        i = visitors_.erase(i);
      } else if (i->is_greeted()) {
        links_.previous = i->take(args_.lost_after);
        visitors_.clear();
        return;
      } else if (!i->is_known() && join_clock::now() >= i->deadline) {
        i = visitors_.erase(i);
      } else {
        ++i;
      }
    }
  }

  // -- waiting ----------------------------------------------------------------

  /// Waits until there is something to do. Returns whether to stop.
  bool wait_for_events() {
    auto until = end_;
    std::vector<pollfd> waits{{args_.stop, POLLIN, 0}, {-1, POLLIN, 0}};
    if (next_visit_ > join_clock::now())
      until = std::min(until, next_visit_);
    else if (!links_.previous)
      waits.push_back({port_.socket(), POLLIN, 0});
    for (auto& x : visitors_) {
      waits.push_back(x.wait());
      if (!x.is_known())
        until = std::min(until, x.deadline);
    }
    if (calling_)
      waits[1] = {calling_.get(), POLLOUT, 0};
    else if (call_)
      waits[1] = call_->wait();
    if (calling_ || call_)
      until = std::min(until, call_end_);
    else if (!links_.next)
      until = std::min(until, next_call_);
    wait_until_ready(waits, until);
    call_ready_ = waits[1].revents;
    return waits[0].revents != 0;
  }

  const ring_port& port_;
  const std::vector<ring_leader>& leaders_;
  const std::size_t index_;
  const join_ring_args& args_;
  const join_clock::time_point end_ = join_clock::now() + args_.limit;
  ring_links links_;

  unique_fd calling_; ///< Not connected yet.
  std::optional<greeted_connection> call_;
  join_clock::time_point call_end_;
  join_clock::time_point next_call_ = join_clock::now();
  short call_ready_ = 0;
  std::string cause_ = "no answer"; ///< Of the latest call.

  join_clock::time_point next_visit_ = join_clock::now();
  std::list<greeted_connection> visitors_;
  std::string refused_; ///< Why, the latest visitor.
};

} // namespace

std::string encode(const ring_leader& x) {
  return concat(x.host.first_rank, '\n', x.host.ranks, '\n', x.address, '\n',
                x.port, '\n', x.token, '\n', x.encrypted ? 1 : 0, '\n',
                x.host.name);
}

expected<ring_leader> decode_leader(std::string_view text) {
  std::array<std::string_view, 7> parts;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    auto end = std::min(text.find('\n'), text.size());
    parts[i] = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  parts[6] = text;
  ring_leader result;
  auto first_rank = whole_number<int>(parts[0]);
  auto ranks = whole_number<int>(parts[1]);
  auto port = whole_number<std::uint16_t>(parts[3]);
  auto encrypted = whole_number<int>(parts[5]);
  if (!first_rank || !ranks || *ranks < 1 || !port
      || parts[4].size() != ring_token_digits || !encrypted)
    return failure(ec::protocol,
                   "the store holds something else than a leader of the "
                   "ring");
  result.host.first_rank = *first_rank;
  result.host.ranks = *ranks;
  result.port = *port;
  result.address = parts[2];
  result.token = parts[4];
  result.encrypted = *encrypted != 0;
  result.host.name = parts[6];
  return result;
}

expected<ring_port> ring_port::open(const std::string& address) {
  TROUPE_TRY(auto here, endpoint_at(address, 0));
  auto listening = listen_at(
    here, SOMAXCONN,
    concat("the network address ", address, " cannot be used on this host"));
  if (!listening && listening.error().code == ec::invalid_config)
    listening.error().message += other_network_hint;
  TROUPE_TRY(auto port, std::move(listening));
  ring_port result;
  result.address_ = address;
  result.socket_ = std::move(port.socket);
  result.port_ = port.port;
  TROUPE_TRY(result.token_, random_hex(ring_token_digits / 2));
  return result;
}

expected<ring_links> join_ring(const ring_port& port,
                               const std::vector<ring_leader>& leaders,
                               std::size_t index, const join_ring_args& args) {
  if (leaders.size() < 2)
    return ring_links{};
  for (auto& x : leaders)
    if (x.encrypted != args.security->encrypts())
      return failure(ec::invalid_config,
                     concat(to_string(x.host),
                            x.encrypted ? " encrypts" : " does not encrypt",
                            " gradients, this host does",
                            x.encrypted ? " not" : ""));
  return ring_joiner{port, leaders, index, args}.run();
}

} // namespace troupe::internal
