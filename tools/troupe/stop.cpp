#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

// troupe stop: asks the driver of a run to end it.

namespace troupe::tool {

using namespace internal;

namespace {

struct stop_arguments {
  std::shared_ptr<run_arguments> run;
  bool preempt = false;
  bool wait = false;
};

// The kernel says when the state is replaced, or the driver releases the run or
// ends; not what a driver on another host does.
expected<void> wait_for_end(const fs::path& path) {
  constexpr auto look_interval_ms = 1000;
  unique_fd changes{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  auto watch = [&](const fs::path& folder, std::uint32_t what) {
    return ::inotify_add_watch(changes.get(), folder.c_str(), what) >= 0;
  };
  if (!changes || !watch(path, IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF))
    return tl::unexpected{storage_error("watch", path, errno)};
  (void) watch(path / run_layout::attempts, IN_MODIFY | IN_DELETE);
  for (auto run = read_run(path); !has_ended(run); run = read_run(path)) {
    auto pid = run.presence == driver_presence::live ? run.driver->pid : 0;
    unique_fd driver{
      pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1};
    pollfd events[] = {{changes.get(), POLLIN, 0}, {driver.get(), POLLIN, 0}};
    if (::poll(events, 2, look_interval_ms) < 0 && errno != EINTR)
      return tl::unexpected{storage_error("watch", path, errno)};
    char ignored[4096];
    while (::read(changes.get(), ignored, sizeof(ignored)) > 0)
      ;
  }
  return {};
}

expected<int> stop(const stop_arguments& x) {
  TROUPE_TRY(auto path, x.run->path());
  TROUPE_TRY(auto driver, ask_to_end(path, x.preempt));
  if (x.wait)
    TROUPE_TRY_VOID(wait_for_end(path));
  auto state = x.wait ? read_run(path).state_name() : "asked";
  if (x.run->json)
    print_json(
      {{"driver", {{"pid", driver.pid}, {"host", utf8_text(driver.host)}}},
       {"state", state}});
  else
    print(x.wait
            ? concat(one_line(path.filename().string()), " is ", state, "\n")
            : concat("asked ", one_line(to_string(driver)), "\n"));
  return done;
}

} // namespace

verb stop_verb() {
  return {"stop", "Asks the driver of a run to end it.",
          [](CLI::App& app) -> action {
            auto x = std::make_shared<stop_arguments>();
            x->run = add_run_arguments(app);
            app.add_flag("--preempt", x->preempt,
                         "leave ranks time for a last checkpoint");
            app.add_flag("-w,--wait", x->wait, "wait until the run has ended");
            app.footer(
              "The driver looks once a second, on any host. Only the user of "
              "the run can ask.\nExit code 1 if the run has no driver.");
            return [x] { return stop(*x); };
          }};
}

} // namespace troupe::tool
