#include "troupe/trainers/fit.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include <caf/actor_system.hpp>

#include "troupe/actors/callback_actor.hpp"
#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/callbacks/console_progress.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/unique_fd.hpp"
#include "troupe/runtime/run/make_result.hpp"
#include "troupe/trainers/inline_run.hpp"
#include "troupe/trainers/run_handle.hpp"

namespace troupe {

namespace {

using clock_type = std::chrono::steady_clock;

/// How often the console looks at the clock. Nothing of the run waits for it.
constexpr int tick_ms = 200;

/// Shows the run and watches for signals until it is over.
result watch(run_handle& run, console_progress& console) {
  auto wake =
    std::make_shared<unique_fd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  run.board().on_change([wake] {
    std::uint64_t one = 1;
    (void) !write(wake->get(), &one, sizeof(one));
  });
  interrupt_watch interrupts;
  pollfd sources[] = {{wake->get(), POLLIN, 0}, {interrupts.fd(), POLLIN, 0}};
  auto show_notes = [&] {
    for (auto& line : run.board().take_notes())
      console.note(line);
  };
  for (;;) {
    show_notes();
    if (run.board().outcome()) {
      auto outcome = run.wait();
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
      (void) !read(wake->get(), &count, sizeof(count));
    }
    if (sources[1].revents & POLLIN) {
      run.stop();
      sources[1].fd = -1; // It stays readable; once is enough.
    }
  }
}

/// Ends *control* for a signal, as long as it lives.
class inline_watch {
public:
  explicit inline_watch(loop_control& control)
    : watcher_([this, &control] { run(control); }) {}

  ~inline_watch() {
    std::uint64_t one = 1;
    (void) !write(over_.get(), &one, sizeof(one));
    watcher_.join();
  }

  inline_watch(const inline_watch&) = delete;
  inline_watch& operator=(const inline_watch&) = delete;

private:
  void run(loop_control& control) {
    pollfd sources[] = {{over_.get(), POLLIN, 0},
                        {interrupts_.fd(), POLLIN, 0}};
    poll(sources, 2, -1);
    if (sources[1].revents & POLLIN)
      control.end({ec::stopped, "the run was asked to stop"});
  }

  interrupt_watch interrupts_;
  unique_fd over_{eventfd(0, EFD_CLOEXEC)};
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

/// *request* is valid and resolved.
result fit_in_actors(run_request request) {
  register_messages();
  auto quiet = request.run.quiet;
  auto console = std::make_shared<console_progress>(console_progress::options{
    quiet ? console_style::quiet : console_style::automatic, 2, 1});
  run_home home{home_of(request.run.callback_actors)};
  std::function<void(std::string_view)> print;
  if (!quiet)
    print = [console](std::string_view text) { console->print(text); };
  auto run =
    run_handle::start(std::move(request), home.system(), std::move(print));
  if (!run) {
    if (!quiet)
      console->note(run.error().message);
    return failed_result(run.error());
  }
  auto outcome = watch(*run, *console);
  if (run->threads_left_behind() > 0)
    home.keep();
  return outcome;
}

result fit_valid(run_request request) {
  request.run = resolve(std::move(request.run));
  if (request.scaling.num_workers > 0)
    return fit_in_actors(std::move(request));
  loop_control control;
  inline_watch signals{control};
  return run_inline(request, control);
}

} // namespace

result fit(run_request request) {
  try {
    if (auto ok = validate(request); !ok)
      return failed_result(ok.error());
    return fit_valid(std::move(request));
  } catch (...) {
    return failed_result(caught("the run could not go on"));
  }
}

} // namespace troupe
