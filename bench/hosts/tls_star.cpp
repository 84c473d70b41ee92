#include "bench/hosts/tls_star.hpp"

#include <array>

#include <poll.h>

#include "troupe/actors/door/dial.hpp"
#include "troupe/actors/door/ticket.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/trainers/train_error.hpp"

namespace troupe::internal::bench {

namespace {

using message = std::array<std::byte, 64>;

/// Calls *move* with what is left of *x* until all of it has moved. False if
/// the connection is over.
template <class F>
bool all_of(tls_channel& channel, message& x, F move) {
  for (std::size_t done = 0; done < x.size();) {
    auto moved = move(std::span{x}.subspan(done));
    switch (moved.what) {
      case tls_channel::progress::done:
        done += moved.size;
        break;
      case tls_channel::progress::failed:
        return false;
      default: {
        auto reads = moved.what == tls_channel::progress::wants_read;
        pollfd ready{channel.socket(),
                     static_cast<short>(reads ? POLLIN : POLLOUT), 0};
        ::poll(&ready, 1, -1);
      }
    }
  }
  return true;
}

bool receive(tls_channel& from, message& x) {
  return all_of(from, x, [&](auto rest) { return from.read(rest); });
}

bool send(tls_channel& to, message& x) {
  return all_of(to, x, [&](auto rest) { return to.write(rest); });
}

} // namespace

tls_star_hub::tls_star_hub(const std::string& path, int ranks) {
  const std::string run = "bench";
  auto certificates = value_or_throw(make_certificates(run));
  door_args args{.own = value_or_throw(tls_identity::make(
                   certificates.driver, host_role::driver, run)),
                 .on_client = [this](std::unique_ptr<tls_channel> accepted,
                                     const door_greeting&) {
                   std::lock_guard guard{mutex_};
                   clients_.push_back(std::move(accepted));
                   changed_.notify_one();
                 }};
  door_ = value_or_throw(door::open(std::move(args)));
  ticket own{value_or_throw(host_addresses()), door_->port(), run,
             std::move(certificates.agent)};
  value_or_throw(replace_file(path, encode(own).view()));
  thread_ =
    std::thread{[this, ranks] { serve(static_cast<std::size_t>(ranks)); }};
}

tls_star_hub::~tls_star_hub() {
  {
    std::lock_guard guard{mutex_};
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void tls_star_hub::serve(std::size_t ranks) {
  {
    std::unique_lock guard{mutex_};
    changed_.wait(guard, [&] { return ends_ || clients_.size() == ranks; });
    if (ends_)
      return;
  }
  for (message x{};;) {
    for (auto& accepted : clients_)
      if (!receive(*accepted, x))
        return;
    for (auto& accepted : clients_)
      if (!send(*accepted, x))
        return;
  }
}

tls_star_rank::tls_star_rank(const std::string& path)
  : hub_(value_or_throw(dial(value_or_throw(read_ticket_file(path)))).channel) {
}

void tls_star_rank::barrier() {
  message x{};
  if (!send(*hub_, x) || !receive(*hub_, x))
    throw std::runtime_error{"raw star barrier: cannot reach the other ranks"};
}

} // namespace troupe::internal::bench
