#include "troupe/actors/door/dial.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/internet_socket.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

namespace {

using dial_clock = std::chrono::steady_clock;

/// A name that is being resolved on a thread of its own: `getaddrinfo` has no
/// limit, and cannot be interrupted.
class name_lookup {
public:
  static expected<std::shared_ptr<name_lookup>> start(std::string host,
                                                      std::uint16_t port) {
    auto result = std::make_shared<name_lookup>();
    if (!result->done_)
      return system_failure(ec::spawn, "no descriptor");
    TROUPE_TRY_VOID(
      start_detached_thread([result, host = std::move(host), port] {
        result->answer_ = resolve(host, port, host_kind::any);
        result->is_done_ = true;
        result->done_.notify();
      }));
    return result;
  }

  /// Readable once there is an answer.
  int descriptor() const noexcept { return done_.fd(); }

  /// The answer, if there is one.
  std::optional<expected<std::vector<endpoint>>> answer() const {
    if (!is_done_)
      return std::nullopt;
    return answer_;
  }

private:
  wake_event done_;
  expected<std::vector<endpoint>>
    answer_; // not touched by its thread once `is_done_`
  std::atomic<bool> is_done_ = false;
};

std::string not_resolved(const error& why) {
  return "its name cannot be resolved: " + why.message;
}

std::string text_of(const std::optional<endpoint>& x) {
  return x ? x->text() : std::string{};
}

/// One address of the ticket.
struct dialed_address {
  std::string text;
  std::chrono::milliseconds pause; ///< After the next failure.
  dial_clock::time_point next_try; ///< If nothing is under way.
  dial_clock::time_point deadline; ///< Of the try under way.
  std::shared_ptr<name_lookup> lookup;
  bool is_resolving = false;
  std::string cause = "no answer yet"; ///< Of the latest failure.
};

/// One connection that is being made.
struct dial_try {
  dialed_address* of = nullptr;
  unique_fd socket; ///< Until it is connected.
  std::unique_ptr<tls_channel> channel;
  short events = POLLOUT;
  short ready = 0; ///< Of the latest poll.
  door_greeting greeting;
  bool has_greeted = false;
  std::byte answer{}; ///< Of the door.
};

class dialer {
public:
  dialer(const ticket& to, tls_identity own, const dial_args& args)
    : to_(to), own_(std::move(own)), args_(args) {
    for (const auto& x : to.addresses)
      addresses_.push_back({x, args.first_pause, dial_clock::now(), {}, {}});
  }

  expected<dialed_channel> run() {
    for (;;) {
      begin_due();
      if (wait_for_events())
        return failure(ec::stopped, summary("before it was asked to stop"));
      take_answers();
      for (auto i = tries_.begin(); i != tries_.end();)
        i = advance(*i) ? std::next(i) : tries_.erase(i);
      if (result_)
        return std::move(*result_);
      drop_late();
      auto now = dial_clock::now();
      if (stood_still(now, next_event_))
        begin_again(now);
      else if (now >= end_)
        return failure(ec::timeout,
                       summary("within " + duration_text(args_.limit)));
    }
  }

private:
  // -- waiting ----------------------------------------------------------------

  bool is_idle(const dialed_address& x) const {
    return !x.is_resolving
           && std::ranges::none_of(
             tries_, [&x](const dial_try& y) { return y.of == &x; });
  }

  /// Waits until there is something to do. Returns whether to stop.
  bool wait_for_events() {
    std::vector<pollfd> waits{{args_.stop, POLLIN, 0}};
    auto next = end_;
    for (auto& x : tries_) {
      auto fd = x.channel ? x.channel->socket() : x.socket.get();
      waits.push_back({fd, x.events, 0});
    }
    for (auto& x : addresses_) {
      if (x.is_resolving)
        waits.push_back({x.lookup->descriptor(), POLLIN, 0});
      if (!is_idle(x))
        next = std::min(next, x.deadline);
      else if (chosen_ == nullptr)
        next = std::min(next, x.next_try);
    }
    next_event_ = next;
    wait_until_ready(waits, next);
    std::size_t i = 0;
    for (auto& x : tries_)
      x.ready = waits[++i].revents;
    return waits.front().revents != 0;
  }

  void drop_late() {
    auto now = dial_clock::now();
    for (auto& x : addresses_)
      if (!is_idle(x) && x.deadline <= now)
        give_up(x);
  }

  /// Ends what is under way for *x*, whose time is over.
  void give_up(dialed_address& x) {
    auto limit = " within " + duration_text(args_.per_address);
    if (std::exchange(x.is_resolving, false)) // The lookup itself continues.
      fail(x, "its name was not resolved" + limit);
    std::erase_if(tries_, [&](const dial_try& y) {
      if (y.of != &x)
        return false;
      fail(x, (!y.channel      ? "no answer"
               : &y != chosen_ ? "no TLS handshake"
                               : "it did not accept this host")
                + limit);
      if (&y == chosen_)
        chosen_ = nullptr;
      return true;
    });
  }

  /// After a standstill, which may have taken all the time that there was:
  /// tries each address without a pause.
  void begin_again(dial_clock::time_point now) {
    for (auto& x : addresses_) {
      x.pause = args_.first_pause;
      x.next_try = now; // Of those that are not tried yet.
    }
    end_ = std::max(end_, now + args_.per_address);
  }

  void fail(dialed_address& x, std::string cause) {
    x.cause = std::move(cause);
    x.next_try = dial_clock::now() + x.pause;
    x.pause = std::min(2 * x.pause, args_.longest_pause);
  }

  std::string summary(std::string_view when) const {
    auto result =
      concat("no driver of run ", to_.run, " accepted this host at port ",
             to_.port, " ", when, ":");
    for (const auto& x : addresses_)
      result += concat("\n  ", x.text, ": ", x.cause);
    return result;
  }

  // -- trying -----------------------------------------------------------------

  /// Begins to try each address whose pause is over.
  void begin_due() {
    auto now = dial_clock::now();
    for (auto& x : addresses_)
      if (chosen_ == nullptr && is_idle(x) && x.next_try <= now) {
        x.deadline = now + args_.per_address;
        begin(x);
      }
  }

  void begin(dialed_address& x) {
    if (!x.lookup) {
      if (auto number = resolve(x.text, to_.port, host_kind::number))
        return connect_to_all(x, *number);
      auto started = name_lookup::start(x.text, to_.port);
      if (!started)
        return fail(x, not_resolved(started.error()));
      x.lookup = std::move(*started);
    }
    x.is_resolving = true; // One that took longer may have its answer now.
  }

  void take_answers() {
    for (auto& x : addresses_) {
      if (!x.is_resolving)
        continue;
      auto answer = x.lookup->answer();
      if (!answer)
        continue;
      x.is_resolving = false;
      x.lookup.reset(); // The next try asks again: a host may have moved.
      if (*answer)
        connect_to_all(x, **answer);
      else
        fail(x, not_resolved(answer->error()));
    }
  }

  void connect_to_all(dialed_address& x, const std::vector<endpoint>& where) {
    for (const auto& y : where) {
      auto socket = begin_connect(y);
      if (!socket) {
        note_refusal(x, socket.error());
        continue;
      }
      auto& made = tries_.emplace_back();
      made.of = &x;
      made.socket = std::move(*socket);
    }
  }

  void note_refusal(dialed_address& x, int problem) {
    // It was there, and its host still answers.
    if (args_.resumes && problem == ECONNREFUSED)
      result_ =
        failure(ec::protocol, concat("the driver of run ", to_.run,
                                     " has ended: no process listens at ",
                                     x.text, " port ", to_.port));
    fail(x, std::system_category().message(problem));
  }

  /// Continues with *x* if it is ready. Returns false if it is over.
  bool advance(dial_try& x) {
    if (chosen_ != nullptr && chosen_ != &x)
      return false; // Not a failure: its address is tried again if need be.
    if (x.ready == 0)
      return true;
    if (!x.channel && !begin_handshake(x))
      return false;
    auto what = next_step(x);
    x.events = what == tls_channel::progress::wants_write ? POLLOUT : POLLIN;
    if (what == tls_channel::progress::failed)
      note_failure(x);
    else if (what == tls_channel::progress::done)
      finish(x);
    return what != tls_channel::progress::failed;
  }

  bool begin_handshake(dial_try& x) {
    if (auto problem = connect_error(x.socket.get()); problem != 0) {
      note_refusal(*x.of, problem);
      return false;
    }
    auto made = tls_channel::make(own_, std::move(x.socket),
                                  tls_channel::side::client, args_.link);
    if (!made) {
      fail(*x.of, std::move(made.error().message));
      return false;
    }
    x.channel = std::move(*made);
    if (auto own = endpoint::local(x.channel->socket()))
      x.greeting.sent_from = own->bytes();
    if (args_.resumes) {
      x.greeting.link = *args_.resumes;
      x.greeting.resumes = true;
    } else if (auto filled = fill_random(x.greeting.link); !filled) {
      fail(*x.of, std::move(filled.error().message));
      return false;
    }
    return true;
  }

  tls_channel::progress next_step(dial_try& x) {
    using progress = tls_channel::progress;
    if (!x.channel->is_established())
      if (auto what = x.channel->shake_hands(); what != progress::done)
        return what;
    chosen_ = &x;
    if (!x.has_greeted) {
      auto greeting = encode(x.greeting);
      if (auto what = x.channel->write(greeting).what; what != progress::done)
        return what;
      x.has_greeted = true;
    }
    // The door's answer, or the alert that says why it refuses us.
    return x.channel->read({&x.answer, 1}).what;
  }

  void finish(dial_try& x) {
    if (x.answer != door_welcome) {
      result_ = failure(ec::protocol, concat("the driver of run ", to_.run,
                                             " has given this host up"));
      return;
    }
    auto socket = x.channel->socket();
    result_ = dialed_channel{std::move(x.channel), x.greeting.link, x.of->text,
                             text_of(endpoint::local(socket)),
                             text_of(endpoint::remote(socket))};
  }

  void note_failure(dial_try& x) {
    const auto& why = x.channel->failure();
    // The driver of this run itself: it has shown its certificate.
    if (std::exchange(chosen_, nullptr) == &x && why.by_peer)
      result_ = failure(ec::protocol,
                        concat("the driver of run ", to_.run, " at ",
                               x.of->text, " refuses this host: ", why.text));
    fail(*x.of, why.text);
  }

  const ticket& to_;
  tls_identity own_;
  const dial_args& args_;
  dial_clock::time_point end_ = dial_clock::now() + args_.limit;
  dial_clock::time_point next_event_;     ///< At the latest.
  std::vector<dialed_address> addresses_; // as many as at the start
  std::list<dial_try> tries_;
  dial_try* chosen_ = nullptr; ///< The one that has shown its certificate.
  std::optional<expected<dialed_channel>> result_;
};

} // namespace

expected<dialed_channel> dial(const ticket& to, const dial_args& args) {
  TROUPE_TRY(auto own, tls_identity::make(to.own, host_role::agent, to.run));
  return dialer{to, std::move(own), args}.run();
}

} // namespace troupe::internal
