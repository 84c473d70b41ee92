#include "troupe/trainers/run_parts.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/trainers/mpi_launch.hpp"
#include "troupe/trainers/run_starter.hpp"

namespace troupe::internal {

namespace {

/// A question that fails is a reason to hurry, too.
bool is_hurried(const std::function<bool()>& hurried) noexcept {
  try {
    return hurried && hurried();
  } catch (...) {
    return true;
  }
}

} // namespace

expected<void> run_parts::open_endpoint(caf::actor_system& system) {
  if (threads)
    return {};
  auto note = [x = monitor](std::string why) { x->note(std::move(why)); };
  TROUPE_TRY(auto ranks, open_private_endpoint(system, agent, note));
  endpoint->emplace(std::move(ranks));
  if (!door)
    return {};
  TROUPE_TRY(auto hosts, open_private_endpoint(system, group, note));
  agents.emplace(std::move(hosts));
  if (launches)
    launches->open(group, door->ticket_text());
  if (publishes_ticket)
    TROUPE_TRY_VOID(publish_mpi_ticket(door->ticket_text()));
  return door->admit(*agents, agent_ticket);
}

void run_parts::await_end(const std::function<bool()>& hurried) noexcept {
  constexpr auto tick = std::chrono::milliseconds{100};
  monitor->wait();
  std::unique_lock guard{waiting};
  auto is_over = [this] { return state != rest::ending; };
  while (!closed.wait_for(guard, tick, is_over)) {
    guard.unlock();
    if (is_hurried(hurried))
      trackers->hurry();
    guard.lock();
  }
  if (state == rest::ended)
    return;
  state = rest::ending;
  guard.unlock();
  end_rest(hurried);
  guard.lock();
  state = rest::ended;
  closed.notify_all();
}

void run_parts::end_rest(const std::function<bool()>& hurried) noexcept {
  try {
    launcher->drain();
    rank_zero.reset();
    for (auto& text : trackers->finish(hurried))
      unsent.push_back(std::move(text));
    if (auto last = std::exchange(cursor, nullptr))
      std::ranges::copy(last->skipped(), std::back_inserter(unsent));
  } catch (...) {
    try {
      unsent.push_back(
        caught("the run's last files may be incomplete").message);
      monitor->note(unsent.back());
    } catch (...) { // No memory for the sentence.
    }
  }
  // No part of the run writes to its folder any more.
  store->release();
  end_hosts();
}

void run_parts::end_hosts() noexcept {
  if (door)
    door->end_connections(std::chrono::seconds{2});
  if (launches)
    launches->close();
  door.reset();
  ways.clear();
  agents.reset();
}

// -- agent_way

namespace {

struct taken_ways {
  std::mutex mutex;
  std::set<std::string> names;
};

// Never destroyed: a handle may be, once `main` has returned.
taken_ways& own_taken_ways() {
  static auto instance = new taken_ways;
  return *instance;
}

} // namespace

expected<agent_way> agent_way::take(std::string name) {
  auto& all = own_taken_ways();
  std::lock_guard guard{all.mutex};
  if (!all.names.insert(name).second)
    return failure(ec::conflict,
                   name
                     + " another run of this program: start this one once "
                       "wait() of that has returned");
  return agent_way{std::move(name)};
}

agent_way::~agent_way() {
  if (name_.empty())
    return;
  auto& all = own_taken_ways();
  std::lock_guard guard{all.mutex};
  all.names.erase(name_);
}

// -- closing_notice

expected<void> closing_notice::tell(run_closed_actor who, run_closed message,
                                    std::function<void()> await) {
  std::unique_lock guard{shared_->mutex};
  if (shared_->is_closed) {
    guard.unlock();
    send_anonymous(who, std::move(message));
    return {};
  }
  shared_->waiting.push_back(std::move(who));
  if (thread_.joinable())
    return {};
  auto started = start_user_thread(
    [x = shared_, message = std::move(message), await = std::move(await)] {
      await();
      serve(*x, message);
    });
  if (!started) {
    shared_->waiting.pop_back();
    return tl::unexpected{std::move(started.error())};
  }
  thread_ = std::move(*started);
  return {};
}

void closing_notice::serve(shared& x, const run_closed& message) noexcept {
  std::vector<run_closed_actor> waiting;
  {
    std::lock_guard guard{x.mutex};
    x.is_closed = true;
    waiting.swap(x.waiting);
  }
  try {
    for (auto& who : waiting)
      send_anonymous(who, message);
  } catch (...) { // No memory for the message: `wait` returns all the same.
  }
}

void closing_notice::let_go() noexcept {
  if (!thread_.joinable())
    return;
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
}

// -- run_access

expected<run_handle> run_access::start(prepared_request request,
                                       caf::actor_system& system,
                                       run_surroundings around) noexcept {
  try {
    register_messages();
    TROUPE_TRY(auto parts,
               make_run(std::move(request), system, std::move(around)));
    run_handle result{std::move(parts)};
    auto& run = *result.parts_;
    if (auto ok = run.open_endpoint(system); !ok) {
      // This is not a requested stop: the driver stores the reason.
      send_anonymous(run.driver, fail_run{ok.error()});
      return tl::unexpected<error>{std::move(ok.error())};
    }
    send_anonymous(run.driver, start_run{});
    return result;
  } catch (...) {
    return tl::unexpected<error>{caught("the run could not start")};
  }
}

} // namespace troupe::internal
