#include "troupe/callbacks/tracking/sink_thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <system_error>
#include <utility>

namespace troupe {

namespace {

tracked_run with_token(tracked_run run, std::stop_token token) {
  run.cancelled = std::move(token);
  return run;
}

} // namespace

sink_thread::sink_thread(std::shared_ptr<sink> target, tracked_run run,
                         tracker_options options, sink_feed::note_function note)
  : options_(options),
    feed_(std::move(target), with_token(std::move(run), cancel_.get_token()),
          options, std::move(note)),
    follower_([this] { follow(); }) {}

sink_thread::~sink_thread() {
  if (!follower_.joinable())
    return;
  if (!sender_.joinable() && !alone_)
    close();
  (void) join(clock::now());
}

void sink_thread::notify() noexcept {
  // Once per pause of the thread: the report path pays for one exchange.
  if (!news_.exchange(true, std::memory_order_acq_rel)) {
    { std::lock_guard guard{mutex_}; }
    changed_.notify_one();
  }
}

void sink_thread::close() {
  try {
    sender_ = std::thread{[this] { send_rest(); }};
  } catch (const std::system_error&) {
    alone_ = true; // The host has no thread left: `follow` sends the rest.
  }
  {
    std::lock_guard guard{mutex_};
    closed_ = true;
  }
  changed_.notify_all();
}

void sink_thread::abandon() {
  {
    std::lock_guard guard{mutex_};
    closed_ = stopped_ = true;
    ended_ = true; // Nobody waits for what is unsent.
  }
  changed_.notify_all();
  cancel_.request_stop();
}

std::string sink_thread::join(clock::time_point deadline) {
  {
    std::unique_lock lock{mutex_};
    changed_.wait_until(lock, deadline, [this] { return ended_; });
    stopped_ = true;
  }
  changed_.notify_all();
  cancel_.request_stop();
  if (sender_.joinable())
    sender_.join();
  follower_.join();
  auto unsent = feed_.unsent();
  if (unsent == 0)
    return {};
  auto file = feed_.target().file();
  auto text = "tracker " + name() + ": "
              + (file.empty() ? std::string{} : file + " is not whole, ")
              + std::to_string(unsent) + " records are unsent";
  if (feed_.trouble())
    text += " (" + feed_.trouble().message + ')';
  return text + "; they are kept, troupe-sync sends them";
}

// The feed makes failures of exceptions; what is thrown while it does so (no
// memory for the sentence) must not end the user's process either.
std::optional<sink_thread::clock::time_point> sink_thread::pump() noexcept {
  try {
    return feed_.pump(clock::now());
  } catch (...) {
    return std::nullopt;
  }
}

void sink_thread::follow() {
  // A thread's own priority, on Linux. Without the right to it nothing is lost.
  (void) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
  std::unique_lock lock{mutex_};
  while (!closed_) {
    lock.unlock();
    news_.store(false, std::memory_order_release);
    auto next = pump();
    if (!next || *next > clock::now())
      wait(next);
    lock.lock();
  }
  left_ = true;
  changed_.notify_all();
  if (alone_)
    send_rest(lock);
  changed_.wait(lock, [this] { return ended_; });
}

void sink_thread::send_rest() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return left_; });
  send_rest(lock);
}

void sink_thread::send_rest(std::unique_lock<std::mutex>& lock) {
  std::optional<clock::time_point> give_up; // If it goes on failing.
  while (!stopped_) {
    lock.unlock();
    auto next = pump();
    auto limit = options_.failing_timeout;
    if (!feed_.trouble())
      give_up.reset();
    else if (limit && !give_up)
      give_up = clock::now() + *limit;
    lock.lock();
    if (!next || (give_up && *next > *give_up))
      break; // All is sent, or nothing more will be.
    changed_.wait_until(lock, *next, [this] { return stopped_; });
  }
  ended_ = true;
  changed_.notify_all();
}

void sink_thread::wait(std::optional<clock::time_point> next) {
  std::unique_lock lock{mutex_};
  auto over = [this] { return closed_; };
  if (next) {
    changed_.wait_until(lock, *next, over);
    return;
  }
  changed_.wait(lock, [this] { return news_ || closed_; });
  // The first record goes out at once: the sink starts while the ranks do. What
  // comes later within the interval goes along.
  if (std::exchange(waits_for_more_, true))
    changed_.wait_for(lock, options_.interval, over);
}

} // namespace troupe
