#include "troupe/trainers/agent_launcher.hpp"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/hosts/environment_map.hpp"
#include "troupe/runtime/hosts/host_launcher.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

struct agent_launcher::parts {
  /// Where the launcher's thread finds the group.
  struct listener_cell {
    std::mutex mutex;
    worker_group_actor group;

    template <class Message>
    void tell(Message x) {
      std::lock_guard guard{mutex};
      if (group)
        send_anonymous(group, std::move(x));
    }
  };

  expected<std::vector<std::string>> command(std::size_t host,
                                             std::uint64_t launch) const {
    return agent_command(plan.engine, plan.hosts[host].name,
                         {program, concat("--node-agent=", launch)}, folder,
                         variables);
  }

  std::optional<std::vector<std::string>> environment(std::size_t host) const {
    return launcher_environment(plan.engine, plan.hosts[host].name, variables);
  }

  host_plan plan;
  std::string program;
  std::string folder;
  environment_map variables; ///< Of this process.
  std::shared_ptr<listener_cell> cell = std::make_shared<listener_cell>();
  std::mutex mutex;
  std::string ticket; // guarded by it
  /// Guarded by it. Unset: this is closed.
  std::unique_ptr<host_launcher> launcher;
};

agent_launcher::agent_launcher(std::unique_ptr<parts> x)
  : parts_(std::move(x)) {}

agent_launcher::~agent_launcher() {
  close();
}

expected<std::shared_ptr<agent_launcher>>
agent_launcher::start(host_plan hosts) {
  auto x = std::make_unique<parts>();
  x->plan = std::move(hosts);
  TROUPE_TRY(x->program, own_program());
  boost::system::error_code code;
  x->folder = fs::current_path(code).string();
  if (code)
    return failure(ec::spawn,
                   "the agents' folder is not known: " + code.message());
  x->variables = own_environment();
  launch_listener listener{
    [cell = x->cell](std::uint64_t launch) {
      cell->tell(agent_launched{launch});
    },
    [cell = x->cell](const launch_end& end) {
      cell->tell(launcher_ended{end.launch, to_string(end), end.may_help()});
    },
    [cell = x->cell](std::uint64_t launch, std::string words) {
      cell->tell(launcher_said{launch, std::move(words)});
    }};
  TROUPE_TRY(auto launcher, host_launcher::start(std::move(listener)));
  x->launcher = std::make_unique<host_launcher>(std::move(launcher));
  // The first host is the driver's, so that the numbers are those of the hosts.
  for (std::size_t host = 1; host < x->plan.hosts.size(); ++host)
    if (auto command = x->command(host, host)) // If not, `launch` says why.
      x->launcher->prepare(host, std::move(*command), x->environment(host));
  return std::shared_ptr<agent_launcher>{new agent_launcher{std::move(x)}};
}

void agent_launcher::open(worker_group_actor group, std::string ticket) {
  {
    std::lock_guard guard{parts_->cell->mutex};
    parts_->cell->group = std::move(group);
  }
  std::lock_guard guard{parts_->mutex};
  parts_->ticket = std::move(ticket);
}

void agent_launcher::close() {
  std::unique_ptr<host_launcher> last;
  {
    std::lock_guard guard{parts_->mutex};
    last.swap(parts_->launcher);
  }
  last.reset(); // Waits, without the lock.
  std::lock_guard guard{parts_->cell->mutex};
  parts_->cell->group = nullptr;
}

void agent_launcher::launch(std::size_t host, std::uint64_t launch) {
  auto& x = *parts_;
  auto command = x.command(host, launch);
  if (!command) {
    x.cell->tell(launcher_ended{launch, command.error().message, false});
    return;
  }
  auto environment = x.environment(host);
  std::lock_guard guard{x.mutex};
  if (x.launcher)
    x.launcher->launch(launch, std::move(*command), x.ticket,
                       std::move(environment));
}

agent_launches
agent_launcher::functions_of(const std::shared_ptr<agent_launcher>& x) {
  std::weak_ptr<agent_launcher> weak = x;
  auto with_launcher = [weak](auto use) {
    if (auto strong = weak.lock()) {
      std::lock_guard guard{strong->parts_->mutex};
      if (strong->parts_->launcher)
        use(*strong->parts_->launcher);
    }
  };
  agent_launches result;
  result.begin = [weak](std::size_t host, std::uint64_t launch) {
    if (auto strong = weak.lock())
      strong->launch(host, launch);
  };
  result.arrived = [with_launcher](std::uint64_t launch) {
    with_launcher([launch](host_launcher& y) { y.arrived(launch); });
  };
  result.end = [with_launcher](std::uint64_t launch) {
    with_launcher([launch](host_launcher& y) { y.end(launch); });
  };
  return result;
}

} // namespace troupe::internal
