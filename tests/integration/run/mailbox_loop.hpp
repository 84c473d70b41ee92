#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <caf/scoped_actor.hpp>
#include <gtest/gtest.h>
#include <troupe/actors.hpp>

#include "troupe/actors/compat/messaging.hpp"

// Ranks that answer messages of a service, and what asks them.

namespace troupe::internal::test {

/// What the service asks a rank.
struct question {
  int number = 0;
  std::string deed;
};

template <class Inspector>
bool inspect(Inspector& f, question& x) {
  return f.object(x).fields(f.field("number", x.number),
                            f.field("deed", x.deed));
}

struct reply {
  int rank = 0;
  int number = 0;
  std::uint64_t dropped = 0;
};

template <class Inspector>
bool inspect(Inspector& f, reply& x) {
  return f.object(x).fields(f.field("rank", x.rank),
                            f.field("number", x.number),
                            f.field("dropped", x.dropped));
}

/// Answered beside the loop.
struct ping {};

template <class Inspector>
bool inspect(Inspector& f, ping& x) {
  return f.object(x).fields();
}

/// Asks a rank to send its rank to an actor.
struct introduce_to {
  caf::actor who;
};

template <class Inspector>
bool inspect(Inspector& f, introduce_to& x) {
  return f.object(x).fields(f.field("who", x.who));
}

/// Asks a rank to send an actor more than fits into a message.
struct flood {
  caf::actor who;
};

template <class Inspector>
bool inspect(Inspector& f, flood& x) {
  return f.object(x).fields(f.field("who", x.who));
}

} // namespace troupe::internal::test

CAF_BEGIN_TYPE_ID_BLOCK(mailbox_test, ::troupe::first_user_type_id)
CAF_ADD_TYPE_ID(mailbox_test, (troupe::internal::test::question))
CAF_ADD_TYPE_ID(mailbox_test, (troupe::internal::test::reply))
CAF_ADD_TYPE_ID(mailbox_test, (troupe::internal::test::ping))
CAF_ADD_TYPE_ID(mailbox_test, (troupe::internal::test::introduce_to))
CAF_ADD_TYPE_ID(mailbox_test, (troupe::internal::test::flood))
CAF_END_TYPE_ID_BLOCK(mailbox_test)

namespace troupe::internal::test {

/// How long an answer may take.
constexpr std::chrono::seconds mailbox_limit{60};

struct loop_plan {
  std::uint64_t capacity = 256;
  std::string gate; ///< A FIFO that the loop opens before it receives.
  std::string note; ///< A file that says that the loop was stopped.

  template <class Archive>
  void serialize(Archive& ar) {
    ar(capacity, gate, note);
  }
};

/// Answers questions until one is negative.
inline void answering_loop(train_context& context, const loop_plan& plan) {
  rank_mailbox mailbox{context, {.capacity = plan.capacity}};
  mailbox.on<ping>([&](const ping&) { return reply{context.rank()}; });
  mailbox.on<introduce_to>([&](const introduce_to& x) {
    send_anonymous(x.who, reply{context.rank(), 17});
  });
  mailbox.on<flood>([](const flood& x) {
    send_anonymous(x.who, std::string(std::size_t{70} << 20, 'x'));
  });
  mailbox.on<shared_bytes>([&](const shared_bytes& x) {
    auto last = x.bytes().back();
    return reply{static_cast<int>(last), static_cast<int>(x.size() >> 20)};
  });
  if (!plan.gate.empty())
    std::ifstream{plan.gate}.get();
  try {
    for (auto open = true; open;) {
      auto asked = mailbox.receive<question>();
      if (asked.value.deed == "die")
        ::raise(SIGKILL);
      if (asked.value.deed == "refuse")
        asked.refuse({ec::invalid_argument, "no answer to that"});
      else
        asked.answer(
          reply{context.rank(), 2 * asked.value.number, mailbox.dropped()});
      open = asked.value.number >= 0;
    }
  } catch (const run_stopped&) {
    std::ofstream{plan.note} << "stopped";
    throw;
  }
  context.report({{"rank", context.rank()}});
}

/// The ranks of a run, as an actor that follows them hears of them.
class rank_watch {
public:
  rank_watch(caf::actor_system& system, const run_control_actor& run)
    : actor_(system.spawn(follower, run, news_)) {}

  ~rank_watch() { caf::anon_send_exit(actor_, caf::exit_reason::kill); }

  /// The first news of all ranks of an attempt from *attempt* on.
  ranks_changed all(std::uint64_t attempt = 0) {
    return wait([&](const ranks_changed& x) {
      return x.is_complete() && x.attempt >= attempt;
    });
  }

  ranks_changed wait(const std::function<bool(const ranks_changed&)>& f) {
    std::unique_lock lock{news_->mutex};
    auto is_there = news_->changed.wait_for(lock, mailbox_limit,
                                            [&] { return f(news_->last); });
    EXPECT_TRUE(is_there);
    return news_->last;
  }

private:
  /// Shared with the actor, which may still take a message when the watch goes.
  struct news {
    std::mutex mutex;
    std::condition_variable changed;
    ranks_changed last;
  };

  static rank_observer_actor::behavior_type
  follower(rank_observer_actor::pointer self, const run_control_actor& run,
           const std::shared_ptr<news>& all) {
    auto note = [all](const ranks_changed& x) {
      std::lock_guard guard{all->mutex};
      all->last = x;
      all->changed.notify_all();
    };
    request(self, run, mailbox_limit, follow_ranks{}, rank_observer_actor{self})
      .then(note, [](const caf::error& x) { ADD_FAILURE() << to_string(x); });
    return {note};
  }

  std::shared_ptr<news> news_ = std::make_shared<news>();
  rank_observer_actor actor_;
};

/// What *rank* answers to *x*.
template <class Message>
expected<reply> ask(caf::scoped_actor& self, const caf::actor& rank,
                    Message x) {
  expected<reply> result;
  request(self, rank, mailbox_limit, std::move(x))
    .receive(
      [&](const reply& y) { result = y; },
      [&](const caf::error& y) { result = tl::unexpected{from_caf(y)}; });
  return result;
}

} // namespace troupe::internal::test
