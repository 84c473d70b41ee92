#include "bench/hosts/namespace_hosts.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/numbers.hpp"
#include "bench/program.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::bench {

namespace {

bool runs(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

} // namespace

std::string own_program() {
  return fs::canonical("/proc/self/exe").string();
}

double time_of_event(const std::string& folder, std::string_view kind) {
  const std::string time = "\"time_us\":";
  std::optional<double> result;
  std::ifstream in{folder + "/run/journal.jsonl"};
  for (std::string line; std::getline(in, line);)
    if (auto at = line.find(time);
        line.find(concat('"', kind, '"')) != line.npos && at != line.npos)
      result = monotonic(std::stod(line.substr(at + time.size())) / 1e6);
  if (!result)
    throw std::runtime_error{
      concat("the journal has no event of the kind ", kind)};
  return *result;
}

namespace_hosts::namespace_hosts(workplace& place, int count, bool slurm)
  : place_(place) {
  auto* given = std::getenv("TROUPE_HOST_TOOLS");
  std::string folder = given ? given : TROUPE_HOST_TOOLS;
  hosts_tool_ = folder + "/hosts.sh";
  tool_ = slurm ? folder + "/slurm.sh" : hosts_tool_;
  if (::access(tool_.c_str(), X_OK) != 0)
    throw skipped{concat("there is no ", tool_, " (TROUPE_HOST_TOOLS)")};
  if (slurm && !runs("command -v slurmctld slurmd srun sbatch"))
    throw skipped{"Slurm is not installed (Debian: slurm-wlm)"};
  auto state = place.new_path("hosts");
  ::setenv("TROUPE_HOSTS", state.c_str(), 1);
  ::setenv("TROUPE_SLURM", (state + ".slurm").c_str(), 1);
  if (runs(concat(tool_, " up ", count)))
    return;
  runs(tool_ + " down");
  throw skipped{
    concat("this kernel or user cannot make ", count,
           slurm ? " hosts of namespaces with Slurm" : " hosts of namespaces")};
}

namespace_hosts::~namespace_hosts() {
  for (auto pid : started_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  runs(tool_ + " down");
  if (std::uncaught_exceptions() > 0)
    show_logs();
}

pid_t namespace_hosts::start(int host, std::vector<std::string> command) {
  return start(host, std::move(command), STDERR_FILENO);
}

pid_t namespace_hosts::start(int host, std::vector<std::string> command,
                             int standard_error) {
  command.insert(command.begin(), {hosts_tool_, "run", concat('h', host)});
  auto file = command.front();
  auto made = start_program({file,
                             std::move(command),
                             std::nullopt,
                             {{0, 0}, {1, 1}, {standard_error, 2}}},
                            "a program of the measurement");
  if (!made)
    throw std::runtime_error{made.error().message};
  started_.push_back(made->pid);
  return made->pid;
}

pid_t namespace_hosts::start_agent(int host, const std::string& ticket) {
  auto path = place_.new_path("agent");
  auto log = open_file(path, O_WRONLY | O_CREAT | O_APPEND, "create").value();
  logs_.emplace_back(host, path);
  return start(
    host,
    {"/usr/bin/env", "TROUPE_TICKET=" + ticket, own_program(), "--node-agent"},
    log.get());
}

void namespace_hosts::await(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  std::erase(started_, process);
  if (status != 0)
    throw std::runtime_error{"a program on a host failed"};
}

void namespace_hosts::show_logs() const {
  for (auto& [host, path] : logs_) {
    std::ifstream in{path};
    for (std::string line; std::getline(in, line);)
      std::fprintf(stderr, "the agent of h%d: %s\n", host, line.c_str());
  }
}

void namespace_hosts::call(const std::string& arguments) const {
  if (std::system((tool_ + ' ' + arguments).c_str()) != 0)
    throw std::runtime_error{tool_ + ' ' + arguments + " failed"};
}

} // namespace troupe::internal::bench
