#include "troupe/trainers/data_parallel_trainer.hpp"

#include <poll.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "troupe/actors/callback_actor.hpp"
#include "troupe/actors/thread_launcher.hpp"
#include "troupe/callbacks/console_progress.hpp"
#include "troupe/runtime/environment.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/run/signal_orders.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/run_home.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe {

using namespace internal;

namespace {

using clock_type = std::chrono::steady_clock;

/// How often the console looks at the clock. Nothing of the run waits for it.
constexpr int tick_ms = 200;

constexpr auto could_not_continue = "the run could not continue";

std::string by_signal(const char* what, int signal) {
  return concat("the run was ", what, " by ", signal_text(signal));
}

/// The signals of a run: passes on what they ask for, each time they ask for
/// more.
class run_signals {
public:
  explicit run_signals(const std::vector<int>& preempting)
    : signals_(preempting) {}

  int fd() const noexcept { return signals_.fd(); }

  /// Whether a signal has asked for anything, handled already or not.
  bool any() const noexcept { return signals_.asked() != interrupt::none; }

  /// Why signals are not watched; empty if they are.
  std::string unwatched() const {
    if (fd() >= 0)
      return {};
    auto is_main = gettid() == getpid();
    return std::string{"signals are not watched: "}
           + (is_main ? "the process has no descriptor left"
                      : "fit() was not called by the main thread");
  }

  template <class Preempt, class Stop>
  void apply(Preempt preempt, Stop stop) {
    auto asked = signals_.asked();
    if (!orders_.is_more(asked))
      return;
    if (asked == interrupt::stop)
      stop(why(asked));
    else
      preempt(why(asked));
    orders_.passed_on(asked); // Not after an exception: it is tried again.
  }

  /// As `signals_in_time::outcome_is_fixed`. Called on any thread.
  void outcome_is_fixed() noexcept {
    in_time_.outcome_is_fixed(signals_seen::by(signals_));
  }

  bool is_hurried() const noexcept {
    return in_time_.is_hurried(signals_.count());
  }

  /// The run has come to its end, *outcome*. Signals that came too late are the
  /// program's once fit() returns.
  void run_ended(result& outcome) noexcept {
    outcome_is_fixed();
    outcome.stop_requested = in_time_.asked() != interrupt::none;
    signals_.answer(in_time_.heeded(outcome.status));
  }

  /// The end of a run that did not begin for *reason*, perhaps because a signal
  /// asked it to stop.
  result not_begun(error reason) {
    auto outcome = not_begun_result(std::move(reason));
    run_ended(outcome);
    return outcome;
  }

  /// The same as it is stored. Called on any thread.
  result not_begun_result(error reason) const {
    if (reason.code != ec::stopped || !any())
      return failed_result(std::move(reason));
    auto asked = signals_.asked();
    constexpr std::string_view stopped = "the run was stopped ";
    reason.message =
      reason.message.starts_with(stopped)
        ? why(asked) + ' ' + reason.message.substr(stopped.size())
        : why(asked) + "; " + reason.message;
    auto outcome = failed_result(std::move(reason));
    outcome.status = status_after(asked);
    return outcome;
  }

private:
  std::string why(interrupt asked) const {
    return by_signal(asked == interrupt::stop ? "stopped" : "preempted",
                     signals_.asking_signal());
  }

  interrupt_watch signals_;
  end_orders orders_;
  signals_in_time in_time_;
};

/// Shows the run and watches for signals until it is over.
result watch(run_handle& run, console_progress& console, run_signals& signals) {
  auto& monitor = run_access{run}.monitor();
  wake_event wake;
  monitor_listener listener{monitor, [&](run_state state) {
                              if (state >= run_state::shutting_down)
                                signals.outcome_is_fixed();
                              wake.notify();
                            }};
  pollfd sources[] = {{wake.fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  auto show_notes = [&] {
    for (auto& line : monitor.take_notes())
      console.note(line);
  };
  for (;;) {
    show_notes();
    if (monitor.is_over()) {
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
    if (console.style() != console_style::quiet) // its metrics may be many
      console.update(run.status(), clock_type::now());
    poll(sources, 2, tick_ms);
    console.tick(clock_type::now());
    if (sources[0].revents & POLLIN)
      wake.clear();
    // It stays readable; what comes later is seen by tick.
    if (sources[1].revents & POLLIN)
      sources[1].fd = -1;
    if (signals.any())
      console.hurry();
    signals.apply([&](std::string why) { run.preempt(std::move(why)); },
                  [&](std::string why) { run.abort(std::move(why)); });
  }
}

/// The actor system that the run has to share with the user's actors; nullptr:
/// none.
caf::actor_system*
home_of(const std::vector<std::shared_ptr<const callback_actor>>& actors) {
  for (auto& actor : actors)
    if (auto home = callback_actors::home(*actor))
      return home;
  return nullptr;
}

/// Starts the run, shows it and waits for its end.
result manage(prepared_request request, run_home& home, run_surroundings around,
              console_progress& console, run_signals& signals) {
  auto run =
    run_access::start(std::move(request), home.system(), std::move(around));
  if (!run)
    return signals.not_begun(run.error());
  auto outcome = watch(*run, console, signals);
  signals.run_ended(outcome);
  if (run->threads_left_behind() > 0)
    home.keep();
  return outcome;
}

/// Lends the calling thread to what *manage* does on another one.
result lend_thread(const std::function<result()>& manage, lent_thread& mine) {
  auto outcome = failed_result({});
  auto manager = start_user_thread([&] {
    try {
      outcome = manage();
    } catch (...) {
      outcome = failed_result(caught(could_not_continue));
    }
    mine.take_back();
  });
  if (!manager)
    return failed_result(std::move(manager.error()));
  mine.serve();
  manager->join();
  return outcome;
}

result fit_prepared(prepared_request request,
                    const std::shared_ptr<console_progress>& console) {
  auto lends_thread = request.scaling.num_workers == 0;
  auto home =
    run_home::make(home_of(request.run.callback_actors), lends_thread);
  if (!home)
    return failed_result(std::move(home.error()));
  // CAF ends the program without descriptors, so its system comes first.
  run_signals signals{request.run.preempt_signals};
  run_surroundings around;
  if (console->style() != console_style::quiet)
    around.console = [console](std::string_view text) { console->print(text); };
  around.given_up = [&signals] { return signals.any(); };
  around.end_of_given_up = [&signals](error reason) {
    return signals.not_begun_result(std::move(reason));
  };
  around.network = (*home)->network();
  if (auto why = signals.unwatched(); !why.empty())
    console->note(why);
  auto run = [&] {
    return manage(std::move(request), **home, around, *console, signals);
  };
  if (!lends_thread)
    return run();
  around.thread = std::make_shared<lent_thread>();
  return lend_thread(run, *around.thread);
}

result fit_checked(const run_request& request,
                   const std::shared_ptr<console_progress>& console) {
  if (auto text = misspelled_variable(environ); !text.empty())
    console->note(text);
  auto prepared = prepare(request);
  if (!prepared)
    return failed_result(prepared.error());
  return fit_prepared(std::move(*prepared), console);
}

} // namespace

result fit(const run_request& request) noexcept {
  std::shared_ptr<console_progress> console;
  result outcome;
  try {
    console = std::make_shared<console_progress>(console_progress::options{
      request.run.quiet ? console_style::quiet : console_style::automatic, 2,
      1});
    outcome = fit_checked(request, console);
  } catch (...) {
    outcome = failed_result(caught(could_not_continue));
  }
  // The one place that prints why a run failed that has no summary.
  try {
    if (outcome.error && console && !console->is_finished())
      console->note(outcome.error->message);
  } catch (...) { // No memory for the text: the result has it.
  }
  return outcome;
}

} // namespace troupe
