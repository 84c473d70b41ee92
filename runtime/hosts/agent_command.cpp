#include "troupe/runtime/hosts/host_launcher.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <system_error>
#include <utility>

#include "troupe/runtime/hosts/host_list.hpp"
#include "troupe/runtime/hosts/slurm_job.hpp"
#include "troupe/runtime/process/shell_quoted.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// What a shell exits with if it cannot run a program, or does not find it.
constexpr int exit_not_executable = 126;
constexpr int exit_not_found = 127;

/// How the job has asked for GPUs.
enum class gpu_count { by_node_or_none, by_task, altogether };

gpu_count gpu_count_of(const environment_reader& variables) {
  for (auto name : {"SLURM_GPUS_PER_NODE", "SLURM_GRES", "SLURM_STEP_GRES"})
    if (variables.text_of(name))
      return gpu_count::by_node_or_none;
  for (auto name : {"SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"})
    if (variables.text_of(name))
      return gpu_count::by_task;
  auto by_task = variables.text_of("SLURM_TRES_PER_TASK");
  if (by_task && by_task->find("gpu") != by_task->npos)
    return gpu_count::by_task;
  return variables.text_of("SLURM_GPUS") ? gpu_count::altogether
                                         : gpu_count::by_node_or_none;
}

/// As many as *here*, on this node, for the tasks of *host*, if Slurm says how
/// many tasks each node has.
std::int64_t gpus_for_tasks_of(std::string_view host, std::int64_t here,
                               const environment_map& own) {
  environment_reader variables{own};
  if (!variables.text_of("SLURM_JOB_ID"))
    return here;
  auto task = read_slurm_task(variables);
  auto nodes = read_slurm_nodes(variables, task && *task);
  if (!nodes || !nodes->own_index)
    return here;
  auto that = std::ranges::find(nodes->hosts, host, &host_entry::name);
  auto own_tasks = nodes->hosts[*nodes->own_index].slots.value_or(0);
  if (that == nodes->hosts.end() || !that->slots || own_tasks < 1)
    return here;
  return (here * *that->slots + own_tasks - 1) / own_tasks;
}

/// How many GPUs a step on *host* is to ask for. Slurm gives one that asks for
/// none what the job has asked for: of one task those of a task, or all, which
/// no node has. One that asks by node gets these.
std::optional<std::int64_t> gpus_to_ask_for(std::string_view host,
                                            const environment_map& own) {
  environment_reader variables{own};
  auto count = gpu_count_of(variables);
  auto here = variables.number_of("SLURM_GPUS_ON_NODE");
  if (count == gpu_count::by_node_or_none || !here || !*here)
    return std::nullopt;
  return count == gpu_count::by_task ? gpus_for_tasks_of(host, **here, own)
                                     : **here;
}

/// Variables in which `srun` finds options of the job or step around it, or of
/// the shell, that give a step of one task less than the job has on its node,
/// or cannot be met by it. A `*` stands for any end of the name.
constexpr std::string_view narrowing_variables[] = {
  "SLURM_CPU_BIND*",     "SLURM_CPUS_PER_GPU", "SLURM_CPUS_PER_TASK",
  "SLURM_DISTRIBUTION",  "SLURM_EXACT",        "SLURM_EXCLUSIVE",
  "SLURM_GPU_BIND",      "SLURM_GPUS",         "SLURM_GPUS_PER_SOCKET",
  "SLURM_GPUS_PER_TASK", "SLURM_MEM_BIND*",    "SLURM_NPROCS",
  "SLURM_NTASKS*",       "SLURM_TRES_BIND",    "SLURM_TRES_PER_TASK",
  "SRUN_CPUS_PER_TASK"};

bool is_narrowing(std::string_view name) {
  return std::ranges::any_of(narrowing_variables, [name](std::string_view x) {
    return x.ends_with('*') ? name.starts_with(x.substr(0, x.size() - 1))
                            : name == x;
  });
}

/// In which component of a heterogeneous job *host* is. Without an option for
/// it, `srun` looks in the first one.
std::optional<std::size_t> component_of(std::string_view host,
                                        const environment_map& own) {
  auto components = read_slurm_components(environment_reader{own});
  if (!components)
    return std::nullopt;
  for (std::size_t i = 0; i < components->size(); ++i)
    if (std::ranges::find((*components)[i], host) != (*components)[i].end())
      return i;
  return std::nullopt;
}

} // namespace

expected<std::vector<std::string>>
agent_command(launch_engine engine, std::string_view host,
              const std::vector<std::string>& program,
              const std::string& folder, const environment_map& own) {
  if (!is_host_name(host))
    return failure(ec::invalid_argument, no_host_text(host));
  for (const auto& x : program)
    if (x.find('\0') != x.npos)
      return failure(ec::invalid_argument,
                     "an argument of the program has a byte 0");
  if (program.empty() || !program.front().starts_with('/'))
    return failure(ec::invalid_argument,
                   "the program for the agents has no full path");
  if (engine == launch_engine::slurm) {
    std::vector<std::string> result{
      "srun", // It stays in this folder.
      "--overlap",
      "-N1",
      "-n1",
      "-w",
      std::string{host},
      "--cpu-bind=none",
      "--mem=0",      // All that the job has there.
      "--export=ALL", // As SLURM_EXPORT_ENV of the job may not.
      "--kill-on-bad-exit=0",
      "--input=all"};
    if (auto component = component_of(host, own))
      result.push_back(concat("--het-group=", *component));
    result.insert(result.end(), program.begin(), program.end());
    return result;
  }
  if (engine != launch_engine::ssh)
    return failure(ec::invalid_argument,
                   "agents are launched by ssh and srun only");
  // The remote shell splits the text again.
  std::string command;
  if (!folder.empty())
    command =
      concat("cd ", shell_quoted(folder), " || exit ", exit_never_again, "; ");
  command += "exec";
  for (const auto& x : program)
    command += ' ' + shell_quoted(x);
  // A terminal, forwardings and a command of the user's configuration are for
  // other purposes. The limit includes the whole login at a jump host, which
  // may wait for name servers.
  return std::vector<std::string>{"ssh",
                                  "-T",
                                  "-o",
                                  "ClearAllForwardings=yes",
                                  "-o",
                                  "RemoteCommand=none",
                                  "-o",
                                  "BatchMode=yes",
                                  "-o",
                                  "ConnectTimeout=15",
                                  "-o",
                                  "ServerAliveInterval=1",
                                  "-o",
                                  "ServerAliveCountMax=3",
                                  "-o",
                                  "LogLevel=ERROR",
                                  std::string{host},
                                  std::move(command)};
}

std::vector<std::string> launcher_environment(launch_engine engine,
                                              std::string_view host,
                                              environment_map own) {
  std::vector<std::string> result;
  if (engine == launch_engine::slurm) {
    if (auto gpus = gpus_to_ask_for(host, own))
      own.insert_or_assign("SLURM_GPUS_PER_NODE", std::to_string(*gpus));
    std::erase_if(own, [](const auto& x) { return is_narrowing(x.first); });
  } else {
    // BatchMode is not for the ssh of a jump host, which would open a window.
    own.insert_or_assign("SSH_ASKPASS_REQUIRE", "never");
  }
  for (const auto& [name, value] : own)
    result.push_back(concat(name, '=', value));
  return result;
}

bool launch_end::may_help() const {
  if (how.how == process_exit::kind::lost) // There is no such launcher.
    return !output.starts_with("cannot start ")
           || !output.ends_with(
             concat(": ", std::system_category().message(ENOENT)));
  if (how.how != process_exit::kind::exited)
    return true;
  if (how.code == exit_never_again || how.code == exit_not_executable
      || how.code == exit_not_found)
    return false;
  // Messages of ssh and srun. Names may be known later, hosts may answer, and
  // storage may be mounted again.
  auto says_one_of = [this](std::initializer_list<std::string_view> texts) {
    return std::ranges::any_of(
      texts, [this](auto x) { return output.find(x) != output.npos; });
  };
  if (says_one_of({"execve(): "}))
    return !says_one_of(
      {"No such file or directory", "Permission denied", "Exec format error"});
  return !says_one_of({"Permission denied (", "Host key verification failed",
                       "Invalid job id specified",
                       "Job/step already completing or completed"});
}

} // namespace troupe::internal
