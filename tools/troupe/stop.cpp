#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

// troupe stop: asks the driver of a run or a sweep to end it.

namespace troupe::tool {

using namespace internal;

namespace {

struct stop_arguments {
  std::shared_ptr<run_arguments> run;
  bool finish = false;
  bool preempt = false;
  bool wait = false;
};

/// What `--wait` looks at.
struct watched {
  bool has_ended = false;
  unique_fd driver; ///< Of `open_driver`.
  std::string state;
};

watched look_at(const fs::path& path, bool is_sweep) {
  auto facts_of = [](const auto& x) -> watched {
    return {has_ended(x), open_driver(x), x.state_name()};
  };
  return is_sweep ? facts_of(read_sweep_at(path)) : facts_of(read_run(path));
}

// The kernel says when the state is replaced, the sweep's journal grows, or the
// driver releases the run or ends; not what a driver on another host does.
expected<void> wait_for_end(const fs::path& path, bool is_sweep) {
  constexpr auto look_interval_ms = 1000;
  unique_fd changes{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  auto watch = [&](const fs::path& folder, std::uint32_t what) {
    return ::inotify_add_watch(changes.get(), folder.c_str(), what) >= 0;
  };
  auto own =
    IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | (is_sweep ? IN_MODIFY : 0);
  if (!changes || !watch(path, own))
    return tl::unexpected{storage_error("watch", path, errno)};
  if (!is_sweep)
    (void) watch(path / run_layout::attempts, IN_MODIFY | IN_DELETE);
  for (auto x = look_at(path, is_sweep); !x.has_ended;
       x = look_at(path, is_sweep)) {
    pollfd events[] = {{changes.get(), POLLIN, 0}, {x.driver.get(), POLLIN, 0}};
    if (::poll(events, 2, look_interval_ms) < 0 && errno != EINTR)
      return tl::unexpected{storage_error("watch", path, errno)};
    char ignored[4096];
    while (::read(changes.get(), ignored, sizeof(ignored)) > 0)
      ;
  }
  return {};
}

expected<int> stop(const stop_arguments& x) {
  TROUPE_TRY(auto found, x.run->run_or_sweep());
  auto& [path, is_sweep] = found;
  auto how = x.finish    ? end_kind::finish
             : x.preempt ? end_kind::preempt
                         : end_kind::abort;
  TROUPE_TRY(auto driver,
             is_sweep ? ask_sweep_to_end(path, how) : ask_to_end(path, how));
  if (x.wait)
    TROUPE_TRY_VOID(wait_for_end(path, is_sweep));
  auto state = x.wait ? look_at(path, is_sweep).state : "asked";
  if (x.run->json)
    print_json({{"driver", to_json(driver)}, {"state", state}});
  else
    print(x.wait ? concat(one_line(shown_name(path)), " is ", state, "\n")
                 : concat("asked ", one_line(to_string(driver)), "\n"));
  return done;
}

} // namespace

verb stop_verb() {
  return {
    "stop", "Asks the driver of a run or a sweep to end it.",
    [](CLI::App& app) -> action {
      auto x = std::make_shared<stop_arguments>();
      x->run = add_run_arguments(app);
      auto finish = app.add_flag("--finish", x->finish,
                                 "as finished, after the next report of its "
                                 "ranks; not for a\nsweep");
      app
        .add_flag("--preempt", x->preempt,
                  "as preempted: leave ranks time for a last checkpoint")
        ->excludes(finish);
      app.add_flag("-w,--wait", x->wait, "wait until the run has ended");
      app.footer(
        "Without an option it ends as aborted. The driver looks once a second, "
        "on any host.\nOnly the user of the run can ask.\n"
        "A sweep begins no more trials, those under way end, and its next "
        "start\nresumes it.\nExit code 1 if there is no driver.");
      return [x] { return stop(*x); };
    }};
}

} // namespace troupe::tool
