#include "troupe/trainers/fit.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include <caf/actor_system.hpp>

#include "troupe/actors/callback_actor.hpp"
#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/callbacks/console.hpp"
#include "troupe/callbacks/console_progress.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/quiet_thread.hpp"
#include "troupe/runtime/process/system_failure.hpp"
#include "troupe/runtime/process/unique_fd.hpp"
#include "troupe/runtime/run/make_result.hpp"
#include "troupe/trainers/inline_run.hpp"
#include "troupe/trainers/run_handle.hpp"

namespace troupe {

namespace {

using clock_type = std::chrono::steady_clock;

/// How often the console looks at the clock. Nothing of the run waits for it.
constexpr int tick_ms = 200;

std::string by_signal(const char* what, int signal) {
  auto name = sigabbrev_np(signal);
  return std::string{"the run was "} + what + " by "
         + (name ? std::string{"SIG"} + name
                 : "signal " + std::to_string(signal));
}

/// Passes on what signals ask for, each time they ask for more.
class signal_orders {
public:
  explicit signal_orders(const std::vector<int>& preempting)
    : signals_(preempting) {}

  int fd() const noexcept { return signals_.fd(); }

  /// Whether signals ask for anything, obeyed or not.
  bool any() const noexcept { return signals_.asked() != interrupt::none; }

  /// Why no signal will ever ask for anything; empty: there may be some.
  std::string unwatched() const {
    if (fd() >= 0)
      return {};
    auto is_main = gettid() == getpid();
    return std::string{"signals are not watched: "}
           + (is_main ? "the process has no descriptor left"
                      : "fit() was not called by the main thread");
  }

  template <class Preempt, class Stop>
  void obey(Preempt preempt, Stop stop) {
    auto asked = signals_.asked();
    if (asked <= obeyed_)
      return;
    if (asked == interrupt::stop)
      stop(why(asked));
    else
      preempt(why(asked));
    obeyed_ = asked; // unless an exception is to be followed by another try
  }

  /// What signals ask for from now on, on whatever thread this is called, comes
  /// too late for the run. Only the first call counts.
  void outcome_is_fixed() noexcept {
    auto unknown = still_open;
    auto count = signals_.count();
    if (in_time_.compare_exchange_strong(unknown,
                                         static_cast<int>(signals_.asked())))
      counted_in_time_ = count;
  }

  /// Whether someone has asked since the outcome is fixed: for what is left to
  /// do there is no time.
  bool is_hurried() const noexcept {
    return signals_.count() > counted_in_time_;
  }

  /// The run has come to its end, *outcome*. Signals that came too late are the
  /// program's once fit() returns.
  void run_ended(result& outcome) noexcept {
    outcome_is_fixed();
    auto in_time = static_cast<interrupt>(in_time_.load());
    outcome.stop_requested = in_time != interrupt::none;
    auto had_to_go = outcome.status == run_status_kind::preempted
                     || outcome.status == run_status_kind::aborted;
    signals_.answer(had_to_go ? interrupt::stop : in_time);
  }

  /// How a run ends that did not begin for *reason*, perhaps at a signal's
  /// request.
  result not_begun(error reason) {
    auto outcome = how_not_begun(std::move(reason));
    run_ended(outcome);
    return outcome;
  }

private:
  static constexpr int still_open = -1;

  result how_not_begun(error reason) const {
    if (reason.code != ec::stopped || !any())
      return failed_result(std::move(reason));
    auto asked = signals_.asked();
    reason.message = why(asked) + "; " + reason.message;
    auto outcome = failed_result(std::move(reason));
    outcome.status = asked == interrupt::stop ? run_status_kind::aborted
                                              : run_status_kind::preempted;
    return outcome;
  }

  std::string why(interrupt asked) const {
    return by_signal(asked == interrupt::stop ? "stopped" : "preempted",
                     signals_.asking_signal());
  }

  interrupt_watch signals_;
  interrupt obeyed_ = interrupt::none;
  /// What signals asked for before the outcome was fixed.
  std::atomic<int> in_time_{still_open};
  std::atomic<int> counted_in_time_{std::numeric_limits<int>::max()};
};

/// Calls *listener* at changes of *board* while it lives.
class board_listener {
public:
  board_listener(run_board& board, run_board::listener listener)
    : board_(board) {
    board_.on_change(std::move(listener));
  }

  ~board_listener() { board_.on_change({}); }

  board_listener(const board_listener&) = delete;
  board_listener& operator=(const board_listener&) = delete;

private:
  run_board& board_;
};

/// Shows the run and watches for signals until it is over.
result watch(run_handle& run, console_progress& console,
             signal_orders& signals) {
  unique_fd wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  board_listener listener{run.board(), [&](run_state state) {
                            if (state >= run_state::shutting_down)
                              signals.outcome_is_fixed();
                            std::uint64_t one = 1;
                            (void) !write(wake.get(), &one, sizeof(one));
                          }};
  pollfd sources[] = {{wake.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  auto show_notes = [&] {
    for (auto& line : run.board().take_notes())
      console.note(line);
  };
  for (;;) {
    show_notes();
    if (run.board().outcome()) {
      signals.outcome_is_fixed();
      console.hurry(); // The end waits for what the ranks printed.
      auto outcome = run.wait([&] {
        show_notes();
        console.tick(clock_type::now());
        return signals.is_hurried();
      });
      show_notes();
      auto last = run.status();
      console.finish(summary_of(outcome, last.reports, last.elapsed_s),
                     clock_type::now());
      return outcome;
    }
    console.update(run.status(), clock_type::now());
    poll(sources, 2, tick_ms);
    console.tick(clock_type::now());
    if (sources[0].revents & POLLIN) {
      std::uint64_t count = 0;
      (void) !read(wake.get(), &count, sizeof(count));
    }
    if (sources[1].revents & POLLIN)
      sources[1].fd =
        -1; // It stays readable; what comes later is seen by tick.
    if (signals.any())
      console.hurry();
    signals.obey(
      [&](std::string why) { run.preempt(std::nullopt, std::move(why)); },
      [&](std::string why) { run.stop(std::move(why)); });
  }
}

/// Passes signals on to the loop of an inline run, as long as it lives.
class inline_watch {
public:
  inline_watch(const run_config& config, loop_control& control)
    : grace_(std::min(config.stop_grace, longest_grace(config))),
      control_(control), signals_(config.preempt_signals),
      watcher_([this] { run(); }) {
    if (auto why = signals_.unwatched(); !why.empty() && !config.quiet)
      write_console(2, why + '\n');
  }

  ~inline_watch() {
    is_over_ = true;
    std::uint64_t one = 1;
    (void) !write(over_.get(), &one, sizeof(one));
    watcher_.join();
  }

  void outcome_is_fixed() noexcept { signals_.outcome_is_fixed(); }

  bool is_hurried() const noexcept { return signals_.is_hurried(); }

  void run_ended(result& outcome) noexcept { signals_.run_ended(outcome); }

  inline_watch(const inline_watch&) = delete;
  inline_watch& operator=(const inline_watch&) = delete;

private:
  void run() {
    // Without a descriptor for its end it looks at each tick.
    pollfd sources[] = {{over_.get(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    while (!is_over_) {
      auto ready = poll(sources, 2, over_ && sources[1].fd >= 0 ? -1 : tick_ms);
      if (ready < 0 && errno != EINTR)
        std::this_thread::sleep_for(std::chrono::milliseconds{tick_ms});
      if (ready > 0 && sources[1].revents & POLLIN)
        sources[1].fd = -1;
      obey();
    }
  }

  void obey() noexcept {
    try {
      signals_.obey([this](std::string why) { preempt(std::move(why)); },
                    [this](std::string why) {
                      control_.end({ec::stopped, std::move(why)});
                    });
      if (leave_by_ && clock_type::now() >= *leave_by_)
        control_.end_grace();
    } catch (...) { // No memory: at the next tick.
    }
  }

  void preempt(std::string why) {
    leave_by_ = clock_type::now() + grace_;
    control_.preempt({stop_info::kind_type::preempted, std::move(why),
                      std::chrono::system_clock::now() + grace_});
  }

  std::chrono::milliseconds grace_;
  loop_control& control_;
  signal_orders signals_;
  unique_fd over_{eventfd(0, EFD_CLOEXEC)};
  std::atomic<bool> is_over_{false};
  std::optional<clock_type::time_point> leave_by_;
  std::thread watcher_;
};

/// The actor system that the run has to share with the user's actors; nullptr:
/// none.
caf::actor_system*
home_of(const std::vector<std::shared_ptr<const callback_actor>>& actors) {
  for (auto& actor : actors)
    if (auto home = actor->home())
      return home;
  return nullptr;
}

/// Where a run's actors live: a system of the run's own or that of its user.
class run_home {
public:
  explicit run_home(caf::actor_system* shared) : system_(shared) {
    if (system_)
      return;
    config_ = std::make_unique<system_config>();
    own_ = std::make_unique<caf::actor_system>(*config_);
    system_ = own_.get();
  }

  caf::actor_system& system() { return *system_; }

  /// A rank's thread was left behind. Its actor lives in the system: ending
  /// that would wait for it forever.
  void keep() {
    (void) own_.release();
    (void) config_.release();
  }

private:
  std::unique_ptr<system_config> config_;
  std::unique_ptr<caf::actor_system> own_;
  caf::actor_system* system_;
};

/// What an actor system cannot be without: CAF ends the program if there is no
/// thread for its scheduler, clock, pool or network.
constexpr std::size_t system_threads = 6;

/// The same of descriptors, for the scheduler's and the network's events.
constexpr std::size_t system_descriptors = 6;

/// Opens *count* descriptors and closes them: `ec::spawn` if this process may
/// not have so many more.
expected<void> expect_descriptors(std::size_t count) {
  std::vector<unique_fd> all;
  while (all.size() < count) {
    unique_fd x{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!x)
      return system_failure(ec::spawn,
                            "the run needs " + std::to_string(count)
                              + " more file descriptors, and this process gets "
                              + std::to_string(all.size()));
    all.push_back(std::move(x));
  }
  return {};
}

/// *request* is valid and resolved.
result fit_in_actors(run_request request) {
  if (auto ok = expect_threads(system_threads); !ok)
    return failed_result(ok.error());
  if (auto ok = expect_descriptors(system_descriptors); !ok)
    return failed_result(ok.error());
  register_messages();
  auto quiet = request.run.quiet;
  auto console = std::make_shared<console_progress>(console_progress::options{
    quiet ? console_style::quiet : console_style::automatic, 2, 1});
  run_home home{home_of(request.run.callback_actors)};
  // CAF ends the program without descriptors, so its system comes first.
  signal_orders signals{request.run.preempt_signals};
  std::function<void(std::string_view)> print;
  if (!quiet)
    print = [console](std::string_view text) { console->print(text); };
  if (auto why = signals.unwatched(); !why.empty())
    console->note(why);
  auto run =
    run_handle::start(std::move(request), home.system(), std::move(print),
                      [&signals] { return signals.any(); });
  if (!run) {
    auto outcome = signals.not_begun(run.error());
    console->note(outcome.error->message);
    return outcome;
  }
  auto outcome = watch(*run, *console, signals);
  signals.run_ended(outcome);
  if (run->threads_left_behind() > 0)
    home.keep();
  return outcome;
}

result fit_valid(run_request request) {
  request.run = resolve(std::move(request.run));
  if (request.scaling.num_workers > 0)
    return fit_in_actors(std::move(request));
  loop_control control;
  inline_watch signals{request.run, control};
  auto outcome = run_inline(
    request, control, [&signals] { signals.outcome_is_fixed(); },
    [&signals] { return signals.is_hurried(); });
  signals.run_ended(outcome);
  return outcome;
}

} // namespace

result fit(const run_request& request) noexcept {
  try {
    if (auto ok = validate(request); !ok)
      return failed_result(ok.error());
    return fit_valid(request);
  } catch (...) {
    return failed_result(caught("the run could not go on"));
  }
}

} // namespace troupe
