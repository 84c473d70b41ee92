#include "troupe/trainers/launch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"
#include "troupe/trainers/mpi_launch.hpp"
#include "troupe/trainers/node_agent.hpp"
#include "troupe/trainers/ticket_folder.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view hosts_option = "--hosts";
constexpr std::string_view agent_option = "--node-agent";
constexpr std::string_view tickets_option = "--make-tickets";

/// This process, as `find_launch` saw it.
struct launch_finding {
  std::string hosts; ///< Of the command line.
  expected<launch_environment> environment = launch_environment{};
};

launch_finding& finding() {
  static launch_finding result;
  return result;
}

/// The value of the option *name* in *argument*, which is `NAME=VALUE`.
std::optional<std::string_view> value_in(std::string_view argument,
                                         std::string_view name) {
  if (!argument.starts_with(name)
      || !argument.substr(name.size()).starts_with('='))
    return std::nullopt;
  return argument.substr(name.size() + 1);
}

tl::unexpected<error> refused(std::string_view option, std::string_view why) {
  return failure(ec::invalid_config, concat(option, why));
}

/// Puts the *value* of *option* into *to*; *needs* says what that is.
expected<void> take_value(std::string& to, std::string_view option,
                          std::string_view value, std::string_view needs) {
  if (!to.empty())
    return refused(option, " is given twice");
  if (value.empty())
    return refused(option, concat(" needs ", needs));
  to = value;
  return {};
}

expected<void> take_hosts(launch_arguments& x, std::string_view value) {
  return take_value(x.hosts, hosts_option, value,
                    "a list of hosts, or the path of a file with them");
}

expected<void> take_tickets(launch_arguments& x, std::string_view value) {
  return take_value(x.tickets, tickets_option, value,
                    "a folder for the tickets");
}

expected<void> take_launch(launch_arguments& x, std::string_view value) {
  auto launch = whole_number<std::uint64_t>(value);
  if (!launch || *launch == 0)
    return refused(agent_option, concat('=', cut_text(value, 50),
                                        " is not what a driver passes"));
  x.launch = *launch;
  x.node_agent = true;
  return {};
}

launch_options options_of(const launch_arguments& x) {
  launch_options result;
  result.hosts = x.hosts;
  result.node_agent = x.node_agent;
  result.own_names = own_host_names();
  return result;
}

void say(const std::string& text) {
  std::fprintf(stderr, "troupe: %s\n", text.c_str());
}

[[noreturn]] void be_agent(const launch_arguments& arguments,
                           const launch_environment& found) {
  if (found.engine == launch_engine::mpi)
    std::exit(static_cast<int>(serve_mpi()));
  agent_orders orders;
  orders.launch = arguments.launch;
  if (found.engine == launch_engine::tickets)
    orders.ticket = found.ticket_path;
  if (found.has_lasting_ticket)
    orders.next_run = next_run_patience;
  std::exit(static_cast<int>(run_node_agent(orders).code));
}

/// The process does nothing else.
[[noreturn]] void make_tickets(const std::string& folder) {
  auto address = own_environment();
  auto driver = address.find("TROUPE_DRIVER");
  auto made = driver == address.end()
                ? failure(ec::invalid_config,
                          "--make-tickets: TROUPE_DRIVER does not say where "
                          "the driver will listen, as HOST:PORT")
                : make_ticket_folder(folder, driver->second);
  if (!made) {
    say(made.error().message);
    std::exit(static_cast<int>(agent_exit::never));
  }
  say("made the tickets in " + folder);
  std::exit(0);
}

} // namespace

expected<launch_arguments> read_launch_arguments(int argc,
                                                 const char* const* argv) {
  launch_arguments result;
  for (int i = 1; i < argc && argv[i]; ++i) {
    std::string_view x{argv[i]};
    if (x == "--")
      break;
    if (x == hosts_option) {
      auto next = i + 1 < argc ? argv[++i] : nullptr;
      TROUPE_TRY_VOID(take_hosts(result, next ? next : ""));
    } else if (auto hosts = value_in(x, hosts_option)) {
      TROUPE_TRY_VOID(take_hosts(result, *hosts));
    } else if (x == tickets_option) {
      auto next = i + 1 < argc ? argv[++i] : nullptr;
      TROUPE_TRY_VOID(take_tickets(result, next ? next : ""));
    } else if (auto tickets = value_in(x, tickets_option)) {
      TROUPE_TRY_VOID(take_tickets(result, *tickets));
    } else if (x == agent_option) {
      result.node_agent = true;
    } else if (auto launch = value_in(x, agent_option)) {
      TROUPE_TRY_VOID(take_launch(result, *launch));
    }
  }
  return result;
}

bool had_stdout() noexcept {
  static const auto result = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  return result;
}

void find_launch(int argc, const char* const* argv) {
  auto& mine = finding();
  auto arguments = read_launch_arguments(argc, argv);
  if (!arguments) {
    // A program may have a --hosts of its own; fit() refuses it if it has not.
    if (!arguments.error().message.starts_with(hosts_option)) {
      say(arguments.error().message);
      std::exit(static_cast<int>(agent_exit::never));
    }
    mine.environment = tl::unexpected{arguments.error()};
    return;
  }
  if (!arguments->tickets.empty())
    make_tickets(arguments->tickets);
  // A driver has started it: whatever else is here was meant for that.
  if (arguments->launch != 0)
    be_agent(*arguments, {});
  mine.hosts = arguments->hosts;
  mine.environment =
    find_launch_environment(own_environment(), options_of(*arguments));
  if (!mine.environment) {
    if (!arguments->node_agent)
      return; // fit() says so, if it needs to know.
    say(mine.environment.error().message);
    std::exit(static_cast<int>(agent_exit::never));
  }
  auto& found = *mine.environment;
  if (found.role == launch_role::agent) {
    if (found.engine == launch_engine::tickets)
      say(found.found);
    be_agent(*arguments, found);
  }
  if (found.role == launch_role::extra_task
      || found.engine != launch_engine::none || found.is_odd)
    say(found.found);
  auto is_extra = found.role == launch_role::extra_task;
  if (found.engine == launch_engine::mpi) {
    auto joined = is_extra ? leave_mpi() : lead_mpi();
    // Agents would wait for a driver that cannot tell them that it ends.
    if (!joined && !is_extra) {
      say(joined.error().message);
      std::exit(static_cast<int>(agent_exit::never));
    }
  }
  if (is_extra)
    std::exit(0);
}

expected<launch_environment> found_launch(const std::string& hosts) {
  auto& mine = finding();
  if (hosts.empty() || !mine.hosts.empty()) {
    // Copied before they are moved into the result: without memory, a copy of
    // an `expected` ends the program.
    if (!mine.environment) {
      auto reason = mine.environment.error();
      return tl::unexpected{std::move(reason)};
    }
    auto environment = *mine.environment;
    return environment;
  }
  launch_arguments arguments;
  arguments.hosts = hosts;
  return find_launch_environment(own_environment(), options_of(arguments));
}

bool has_given_hosts(const std::string& hosts) {
  return !hosts.empty() || !finding().hosts.empty();
}

} // namespace troupe::internal
