#include "troupe/callbacks/tracking/sink_thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

tracked_run with_token(tracked_run run, std::stop_token token) {
  run.cancelled = std::move(token);
  return run;
}

/// A sentence if the run's folder is gone, from which the rest would be sent;
/// else empty.
std::string gone_text(const sink_feed& feed) {
  auto& path = feed.run_path();
  auto found = look_up(path);
  if (!found || found->exists())
    return {};
  return "the run's folder " + path.string()
         + " is gone, and with it what is unsent";
}

/// Empty, or a sentence.
std::string unsent_text(const sink_feed& feed) {
  auto unsent = feed.unsent();
  auto text = "tracker " + feed.target().name() + ": ";
  if (!unsent)
    if (auto gone = gone_text(feed); !gone.empty())
      return text + gone;
  if (unsent && *unsent == 0) {
    auto refused = feed.refused();
    if (!feed.may_repeat())
      return refused.empty() ? refused : text + refused;
    text += "all is sent, and may be sent again";
    if (auto& trouble = feed.trouble())
      text += ": " + trouble.message;
    return refused.empty() ? text : text + "; " + refused;
  }
  auto file = feed.target().file();
  if (!unsent)
    return concat(text, file.empty() ? "" : file + " may be incomplete, ",
                  "what is unsent cannot be counted (", unsent.error().message,
                  "); where the journal has records, ",
                  who_sends_the_rest(feed.target()));
  text += concat(file.empty() ? "" : file + " is incomplete, ",
                 counted(*unsent, "record"), *unsent == 1 ? " is" : " are",
                 " unsent");
  if (auto& trouble = feed.trouble())
    text += " (" + trouble.message + ')';
  return text + "; " + who_sends_the_rest(feed.target());
}

} // namespace

std::string who_sends_the_rest(const sink& x) {
  return dynamic_cast<const built_in_sink*>(&x)
           ? "they are kept, troupe sync sends them"
           : "they stay in the journal; troupe sync does not know this "
             "tracker: only a program with this tracker can send them";
}

// -- what the threads share

/// Exists until the last of its threads has ended.
struct sink_thread::state {
  state(std::shared_ptr<sink> target, tracked_run run,
        const tracker_options& options, sink_feed::note_function note)
    : options(options),
      feed(std::move(target), with_token(std::move(run), cancel.get_token()),
           options, std::move(note)) {}

  std::optional<clock::time_point> pump() noexcept;

  /// Sends what comes until the run is over; then waits for `send_rest`:
  /// a child process may be killed when the thread that started it ends.
  void follow();
  void send_rest();
  void send_rest(std::unique_lock<std::mutex>& lock);

  /// Whether to give up a tracker that has failed since *failing* (by `waited`)
  /// and is due for a retry at *next*.
  bool gives_up(std::optional<wait_time::duration>& failing,
                clock::time_point next);
  std::string look_at_files() noexcept;

  /// Waits until there is work; *next* is when a retry is due.
  void wait(std::optional<clock::time_point> next);

  /// Waits for *over* until *time* reaches *limit* or *given_up*, called
  /// without the lock, returns true. Returns whether *over* holds.
  template <class Predicate>
  bool wait(std::unique_lock<std::mutex>& lock, wait_time& time,
            wait_time::duration limit, Predicate over,
            const std::function<bool()>& given_up = {}) {
    while (!over()) {
      auto left = limit - time.passed();
      if (left.count() <= 0)
        return false;
      if (given_up) {
        lock.unlock();
        auto answer = given_up();
        lock.lock();
        if (answer)
          return over();
      }
      changed.wait_for(lock, std::min<wait_time::duration>(left, look_interval),
                       over);
    }
    return true;
  }

  const tracker_options options;
  std::stop_source cancel;
  sink_feed feed; // used by `follow`, then by `send_rest`
  std::atomic<bool> news = true;
  std::mutex mutex; // guards what follows
  std::condition_variable changed;
  bool closed = false;  // nothing more comes
  wait_time waited;     // since then
  bool left = false;    // `follow` no longer uses the feed
  bool alone = false;   // there is no second thread
  bool stopped = false; // no one waits any longer
  bool ended = false;   // `send_rest` has ended, or no one waits for it
  int threads = 0;      // running
  std::string in_files; // what was not uploaded; a sentence
};

// The feed turns exceptions into failures. One thrown meanwhile (no memory for
// the sentence) must not end the user's process either.
std::optional<sink_thread::clock::time_point>
sink_thread::state::pump() noexcept {
  try {
    return feed.pump(clock::now());
  } catch (...) {
    return std::nullopt;
  }
}

void sink_thread::state::follow() {
  // On Linux this is the thread's priority. A failure does no harm.
  (void) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
  std::unique_lock lock{mutex};
  while (!closed) {
    lock.unlock();
    news.store(false, std::memory_order_release);
    auto next = pump();
    // A run that reports all the time always has more by now. Gather that, too;
    // otherwise the sink takes cores from the run all the time.
    if (next && feed.has_caught_up())
      next.reset();
    if (!next || *next > clock::now())
      wait(next);
    lock.lock();
  }
  left = true;
  changed.notify_all();
  if (alone)
    send_rest(lock);
  while (!ended) { // The other thread may be in a long call.
    (void) waited.passed();
    changed.wait_for(lock, wait_time::interval, [this] { return ended; });
  }
  --threads;
  changed.notify_all();
}

void sink_thread::state::send_rest() {
  std::unique_lock lock{mutex};
  changed.wait(lock, [this] { return left; });
  send_rest(lock);
  --threads;
  changed.notify_all();
}

void sink_thread::state::send_rest(std::unique_lock<std::mutex>& lock) {
  std::optional<wait_time::duration> failing;
  while (!stopped) {
    lock.unlock();
    auto next = pump();
    auto files = next ? std::string{} : look_at_files();
    lock.lock();
    in_files = std::move(files);
    if (!next || gives_up(failing, *next))
      break; // Either all is sent, or nothing more can be.
    while (!stopped && clock::now() < *next) {
      (void) waited.passed();
      changed.wait_until(lock,
                         std::min(*next, clock::now() + wait_time::interval),
                         [this] { return stopped; });
    }
  }
  ended = true;
  changed.notify_all();
}

bool sink_thread::state::gives_up(std::optional<wait_time::duration>& failing,
                                  clock::time_point next) {
  if (!feed.trouble()) {
    failing.reset();
    return false;
  }
  auto now = waited.passed();
  if (!failing)
    failing = now;
  auto& limit = options.failing_timeout;
  return limit && next - clock::now() > *failing + *limit - now;
}

std::string sink_thread::state::look_at_files() noexcept {
  try {
    auto text = feed.left_in_files();
    return text.empty() ? text
                        : "tracker " + feed.target().name() + ": " + text;
  } catch (...) {
    return "a tracker cannot say what it has in files only";
  }
}

void sink_thread::state::wait(std::optional<clock::time_point> next) {
  std::unique_lock lock{mutex};
  auto over = [this] { return closed; };
  if (next) {
    changed.wait_until(lock, *next, over);
    return;
  }
  changed.wait(lock, [this] { return news || closed; });
  // A sink starts at once. Later records are gathered for the interval.
  if (feed.has_started())
    changed.wait_for(lock, options.interval, over);
}

// -- their owner

sink_thread::sink_thread(std::shared_ptr<sink> target, tracked_run run,
                         tracker_options options, sink_feed::note_function note)
  : options_(options), name_(target->name()),
    state_(std::make_shared<state>(std::move(target), std::move(run), options,
                                   std::move(note))) {
  state_->threads = 1;
  follower_ = std::thread{[mine = state_] { mine->follow(); }};
}

sink_thread::~sink_thread() {
  if (!follower_.joinable())
    return;
  if (!sender_.joinable() && !state_->alone)
    close();
  wait_time time;
  (void) join(time, {});
}

void sink_thread::notify() noexcept {
  // Once per pause of the thread: a report costs one exchange.
  if (!state_->news.exchange(true, std::memory_order_acq_rel)) {
    { std::lock_guard guard{state_->mutex}; }
    state_->changed.notify_one();
  }
}

void sink_thread::close(wait_time time) {
  std::lock_guard guard{state_->mutex};
  state_->waited = std::move(time);
  state_->alone = true; // No more threads on this host: `follow` sends it.
  try {
    if (auto sender =
          start_user_thread([mine = state_] { mine->send_rest(); })) {
      sender_ = std::move(*sender);
      ++state_->threads;
      state_->alone = false;
    }
  } catch (...) { // No memory for the reason why there is no thread.
  }
  state_->closed = true;
  state_->changed.notify_all();
}

void sink_thread::abandon() {
  {
    std::lock_guard guard{state_->mutex};
    state_->closed = state_->stopped = true;
    state_->ended = true; // No one waits for what is unsent.
  }
  state_->changed.notify_all();
  state_->cancel.request_stop();
}

std::string sink_thread::join(wait_time& time, wait_time::duration limit,
                              const std::function<bool()>& given_up) {
  std::unique_lock lock{state_->mutex};
  (void) state_->wait(
    lock, time, limit, [this] { return state_->ended; }, given_up);
  state_->stopped = true;
  lock.unlock();
  state_->changed.notify_all();
  state_->cancel.request_stop();
  lock.lock();
  auto over = state_->wait(lock, time, time.passed() + cancel_timeout,
                           [this] { return state_->threads == 0; });
  lock.unlock();
  auto end = [over](std::thread& x) {
    if (x.joinable())
      over ? x.join() : x.detach();
  };
  end(sender_);
  end(follower_);
  if (!over) {
    state_->feed.leave();
    auto gone = gone_text(state_->feed);
    return "tracker " + name_
           + " did not return from a call; its thread is left behind; "
           + (gone.empty() ? "of the records that it has not taken: "
                               + who_sends_the_rest(state_->feed.target())
                           : gone);
  }
  return unsent_text(state_->feed);
}

bool sink_thread::has_ended() const {
  std::lock_guard guard{state_->mutex};
  return state_->ended;
}

std::string sink_thread::left_in_files() const {
  std::lock_guard guard{state_->mutex};
  return state_->in_files;
}

} // namespace troupe::internal
