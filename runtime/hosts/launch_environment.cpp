#include "troupe/runtime/hosts/launch_environment.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/hosts/slurm_job.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

tl::unexpected<error> contradiction(std::string sentence) {
  return failure(ec::invalid_config, std::move(sentence));
}

std::vector<std::string> names_of(const std::vector<host_entry>& hosts) {
  std::vector<std::string> result;
  for (const auto& x : hosts)
    result.push_back(x.name);
  return result;
}

std::string count_text(const std::vector<host_entry>& hosts) {
  return concat(counted(hosts.size(), "host"), " (",
                to_short_text(names_of(hosts)), ')');
}

} // namespace

expected<driver_address> parse_driver_address(std::string_view text) {
  auto colon = text.rfind(':');
  auto host = text.substr(0, colon);
  auto digits =
    colon == text.npos ? std::string_view{} : text.substr(colon + 1);
  auto in_brackets = host.starts_with('[') && host.ends_with(']');
  if (in_brackets)
    host = host.substr(1, host.size() - 2);
  if (!is_digits(digits) || !is_host_name(host)
      || in_brackets != (host.find(':') != host.npos))
    return contradiction(concat("TROUPE_DRIVER=", cut_text(text, 300),
                                " is not HOST:PORT or [ADDRESS]:PORT"));
  auto port = whole_number<std::uint16_t>(digits);
  if (!port || *port == 0)
    return contradiction(concat("TROUPE_DRIVER=", cut_text(text, 300),
                                ": the port is out of range, 1 to 65535"));
  return driver_address{std::string{host}, *port};
}

namespace {

/// What a task of srun adds that ends before the others.
constexpr auto wait_time_hint =
  "; if the cluster has a WaitTime, it begins now: use srun --wait=0";

/// Finds out what started the program.
class launch_finder {
public:
  launch_finder(const environment_map& variables, const launch_options& options)
    : variables_(variables), options_(options) {}

  expected<launch_environment> find() {
    auto has_ticket = text_of("TROUPE_TICKET").has_value();
    if (auto driver = text_of("TROUPE_DRIVER"))
      return by_ticket(*driver);
    if (has_ticket && options_.node_agent)
      return with_ticket();
    if (has_ticket)
      return contradiction("TROUPE_TICKET is for agents, but this program was "
                           "started without --node-agent, and TROUPE_DRIVER "
                           "does not say which host has the driver");
    if (!options_.hosts.empty() && !options_.node_agent)
      return over_ssh();
    TROUPE_TRY(auto job, read_slurm_job(variables_));
    if (job)
      return in_slurm(*job);
    TROUPE_TRY(auto rank, mpi_rank());
    if (rank)
      return in_mpi(*rank);
    TROUPE_TRY(auto without_pmix, pmi_rank());
    if (without_pmix && !options_.node_agent)
      return refuse_pmi(*without_pmix);
    return on_this_host();
  }

  expected<void> expect_pmix() const {
    auto job = read_slurm_job(variables_);
    auto rank = pmi_rank();
    if (job && !*job && rank && *rank)
      return refuse_pmi(**rank);
    return {};
  }

private:
  std::optional<std::string_view> text_of(std::string_view name) const {
    return variables_.text_of(name);
  }

  expected<std::optional<std::int64_t>> number_of(std::string_view name) const {
    return variables_.number_of(name);
  }

  std::optional<std::size_t>
  own_index(const std::vector<host_entry>& hosts) const {
    auto is_this = [&](const host_entry& x) {
      return std::ranges::any_of(options_.own_names, [&](const auto& own) {
        return may_be_same_host(own, x.name);
      });
    };
    auto i = std::ranges::find_if(hosts, is_this);
    if (i == hosts.end())
      return std::nullopt;
    return static_cast<std::size_t>(i - hosts.begin());
  }

  /// What this host calls itself.
  std::string_view own_name() const {
    for (const auto& x : options_.own_names)
      if (x != "localhost" && !is_host_address(x))
        return x;
    return "localhost";
  }

  // -- what the engines say about this task -----------------------------------

  expected<std::optional<std::int64_t>> mpi_rank() const {
    TROUPE_TRY(auto rank, number_of("OMPI_COMM_WORLD_RANK"));
    TROUPE_TRY(auto pmix_rank, number_of("PMIX_RANK"));
    if (rank && pmix_rank && *rank != *pmix_rank)
      return contradiction(concat("OMPI_COMM_WORLD_RANK=", *rank,
                                  " and PMIX_RANK=", *pmix_rank,
                                  " are of two different programs"));
    TROUPE_TRY(auto size, number_of("OMPI_COMM_WORLD_SIZE"));
    if (rank && size && *rank >= *size)
      return contradiction(
        concat("OMPI_COMM_WORLD_RANK=", *rank,
               " is not below OMPI_COMM_WORLD_SIZE=", *size));
    return rank ? rank : pmix_rank;
  }

  /// The number of this process among several that an mpiexec with PMI, but
  /// without PMIx, has started, such as that of MPICH. Tasks of
  /// `srun --mpi=pmi2` have the same variables, but are tasks of srun; unless
  /// Slurm counts differently, because srun has started no more than one
  /// process of mpiexec on each node. Steps inside a task inherit its
  /// variables.
  expected<std::optional<std::int64_t>> pmi_rank() const {
    if (text_of("PMIX_RANK"))
      return std::nullopt;
    TROUPE_TRY(auto rank, number_of("PMI_RANK"));
    TROUPE_TRY(auto size, number_of("PMI_SIZE"));
    if (!rank || !size || *size < 2)
      return std::nullopt;
    TROUPE_TRY(auto in_step, read_slurm_task(variables_));
    if (in_step
        && (!in_step->count || in_step->local > 0 || *in_step->count > *size
            || (in_step->number == *rank && *in_step->count == *size)))
      return std::nullopt;
    return rank;
  }

  tl::unexpected<error> refuse_pmi(std::int64_t rank) const {
    return contradiction(concat(
      "this is rank ", rank, " of ", *text_of("PMI_SIZE"),
      " of an mpiexec without PMIx (PMI_RANK is set, PMIX_RANK is not), such "
      "as that of MPICH or Intel MPI, and each would train alone: use Open "
      "MPI's mpirun, srun, or one process with --hosts; or unset PMI_RANK to "
      "train on this host alone"));
  }

  /// The number of this process among those that were started with it, and
  /// what it is called.
  struct task {
    std::int64_t number = 0;
    std::string name;
    bool is_of_srun = false;
  };

  /// A rank of mpirun is also a rank if Slurm gave mpirun its hosts.
  expected<std::optional<task>> own_task() const {
    TROUPE_TRY(auto rank, mpi_rank());
    TROUPE_TRY(auto in_step, read_slurm_task(variables_));
    if (rank && (!in_step || text_of("OMPI_COMM_WORLD_RANK")))
      return task{*rank, concat("rank ", *rank, " of mpirun"), false};
    TROUPE_TRY(auto without_pmix, pmi_rank());
    if (without_pmix)
      return task{*without_pmix, concat("rank ", *without_pmix, " of mpiexec"),
                  false};
    if (!in_step)
      return std::nullopt;
    return task{in_step->number, concat("task ", in_step->number, " of srun"),
                true};
  }

  /// The number of this process among those of its host.
  expected<std::int64_t> own_local_task() const {
    TROUPE_TRY(auto rank, number_of("OMPI_COMM_WORLD_LOCAL_RANK"));
    if (rank)
      return *rank;
    TROUPE_TRY(auto in_step, read_slurm_task(variables_));
    return in_step ? in_step->local : 0;
  }

  // -- the engines ------------------------------------------------------------

  /// A pod, or a program that its user starts on each host.
  expected<launch_environment> by_ticket(std::string_view address) {
    TROUPE_TRY(auto driver, parse_driver_address(address));
    if (!options_.hosts.empty() && !options_.node_agent)
      return contradiction("TROUPE_DRIVER says that agents come by "
                           "themselves, but hosts are given to start them "
                           "over ssh: use one of them");
    launch_environment result;
    result.engine = launch_engine::tickets;
    result.ticket_path = text_of("TROUPE_TICKET").value_or(default_ticket_path);
    result.has_lasting_ticket = true;
    TROUPE_TRY(auto job, read_slurm_job(variables_));
    TROUPE_TRY(auto agents, number_of("TROUPE_AGENTS"));
    if (agents && (*agents < 1 || *agents > std::int64_t{max_hosts}))
      return contradiction(concat("TROUPE_AGENTS=", *agents,
                                  " is not a number of agents from 1 to ",
                                  max_hosts));
    result.agents = static_cast<int>(agents.value_or(0));
    TROUPE_TRY(auto index, number_of("JOB_COMPLETION_INDEX"));
    if (index)
      result.host_index = static_cast<std::size_t>(*index);
    auto who = index ? concat("pod ", *index, " of an Indexed Job")
               : job ? to_string(*job)
                     : std::string{"this host"};
    TROUPE_TRY(auto local, own_local_task());
    auto is_own = std::ranges::any_of(options_.own_names, [&](const auto& own) {
      return may_be_same_host(own, driver.host);
    });
    if (local > 0)
      result.role = launch_role::extra_task;
    else if (options_.node_agent || !is_own)
      result.role = launch_role::agent;
    if (result.role == launch_role::driver)
      result.found =
        concat("TROUPE_DRIVER=", address, " names this host: ", who,
               " is the driver, and agents come by themselves");
    else if (result.role == launch_role::agent)
      result.found = concat(
        "TROUPE_DRIVER=", address, ": ", who,
        " is an agent, with the ticket in ", result.ticket_path,
        is_own ? "" : "; this host is called ", is_own ? "" : own_name());
    else
      result.found =
        concat("TROUPE_DRIVER=", address, ": ", extra_agent_text(local));
    return result;
  }

  /// Of process *local* of a host, which ends at once.
  std::string extra_agent_text(std::int64_t local) const {
    return concat("this is process ", local,
                  " of its host, which has an agent already; it ends",
                  text_of("OMPI_COMM_WORLD_LOCAL_RANK") ? "" : wait_time_hint);
  }

  /// An agent that someone has started for a driver which the ticket names.
  expected<launch_environment> with_ticket() const {
    launch_environment result;
    result.role = launch_role::agent;
    result.engine = launch_engine::tickets;
    result.ticket_path = *text_of("TROUPE_TICKET");
    result.found = concat("an agent, with the ticket ", result.ticket_path);
    TROUPE_TRY(auto local, own_local_task());
    if (local > 0) {
      result.role = launch_role::extra_task;
      result.found += ": " + extra_agent_text(local);
    }
    return result;
  }

  expected<launch_environment> over_ssh() {
    launch_environment result;
    result.engine = launch_engine::ssh;
    TROUPE_TRY(result.hosts, hosts_of(options_.hosts, "the hosts"));
    result.host_index = own_index(result.hosts);
    if (result.host_index) {
      auto first =
        result.hosts.begin() + static_cast<std::ptrdiff_t>(*result.host_index);
      std::vector<host_entry> others{first + 1, result.hosts.end()};
      if (auto again = own_index(others))
        return contradiction(concat("the hosts ", first->name, " and ",
                                    others[*again].name,
                                    " are both this host"));
    }
    TROUPE_TRY_VOID(expect_in_job(result.hosts));
    TROUPE_TRY(auto own, own_task());
    if (own && own->number > 0)
      return extra(std::move(result), "hosts are given", *own);
    TROUPE_TRY_VOID(expect_one_driver());
    result.found =
      concat(count_text(result.hosts), " over ssh, because hosts are given; ",
             place_text(result));
    return result;
  }

  static std::string place_text(const launch_environment& x) {
    if (!x.host_index)
      return "this host is not one of them";
    return "this is " + x.hosts[*x.host_index].name;
  }

  /// Inside a job of Slurm, others' nodes are out of reach.
  expected<void> expect_in_job(const std::vector<host_entry>& hosts) const {
    auto list = text_of("SLURM_JOB_NODELIST");
    if (!text_of("SLURM_JOB_ID") || !list)
      return {};
    TROUPE_TRY(auto nodes, expand_host_list(*list, "SLURM_JOB_NODELIST"));
    for (const auto& host : hosts) {
      auto is_same = [&](const std::string& node) {
        return may_be_same_host(node, host.name);
      };
      if (!is_host_address(host.name) && host.name != "localhost"
          && std::ranges::none_of(nodes, is_same))
        return contradiction(
          concat("host ", host.name, " is given, but Slurm job ",
                 *text_of("SLURM_JOB_ID"), " has ", to_short_text(nodes),
                 ": give no hosts to use those of the job, or unset "
                 "SLURM_JOB_ID"));
    }
    return {};
  }

  /// Each process of torchrun on this host would be the driver of the run.
  expected<void> expect_one_driver() const {
    if (!text_of("RANK") || !text_of("WORLD_SIZE"))
      return {};
    TROUPE_TRY(auto local, number_of("LOCAL_RANK"));
    if (local.value_or(0) == 0)
      return {};
    return contradiction(concat(
      "this is LOCAL_RANK=", *local,
      " of a launcher such as torchrun, each of whose processes would start "
      "agents on all hosts: start one process instead, or unset LOCAL_RANK"));
  }

  static launch_environment extra(launch_environment result,
                                  std::string_view why, const task& own) {
    result.role = launch_role::extra_task;
    result.found = concat(why, ": this is ", own.name,
                          ", which ends: number 0 starts the agents itself");
    if (own.is_of_srun)
      result.found += wait_time_hint;
    return result;
  }

  expected<launch_environment> in_slurm(const slurm_job& job) {
    launch_environment result;
    result.engine = launch_engine::slurm;
    TROUPE_TRY(auto own, own_task());
    // mpirun may have started its daemons in a step of its own.
    TROUPE_TRY(auto without_pmix, pmi_rank());
    auto in_mpi = text_of("OMPI_COMM_WORLD_RANK") || without_pmix;
    TROUPE_TRY(auto step, read_slurm_task(variables_));
    TROUPE_TRY(auto nodes, read_slurm_nodes(variables_, step && !in_mpi));
    result.hosts = std::move(nodes.hosts);
    result.host_index =
      nodes.own_index ? nodes.own_index : own_index(result.hosts);
    if (options_.node_agent) {
      result.role = launch_role::agent;
      result.found =
        concat(to_string(job), ": this is an agent; ", place_text(result));
      return result;
    }
    if (own && own->number > 0)
      return extra(std::move(result), to_string(job), *own);
    TROUPE_TRY_VOID(expect_one_driver());
    auto inherits_step = has_step_of_other_job(variables_);
    auto is_script = inherits_step ? text_of("ENVIRONMENT") == "BATCH"
                                   : text_of("SLURM_PROCID").has_value();
    std::string who;
    if (own)
      who = own->name;
    else if (text_of("SLURM_STEP_ID") && !inherits_step)
      who = "its interactive step";
    else
      who = is_script ? "its batch script" : "a command of salloc";
    TROUPE_TRY(auto part, components_text(result.hosts));
    result.found = concat(to_string(job), ": ", count_text(result.hosts), part,
                          ", this is ", who);
    if (!result.host_index)
      result.found += ", on a host that is not one of them";
    return result;
  }

  /// Of how many components of a heterogeneous job *hosts* are.
  expected<std::string>
  components_text(const std::vector<host_entry>& hosts) const {
    TROUPE_TRY(auto components, read_slurm_components(variables_));
    if (components.empty())
      return std::string{};
    auto names = names_of(hosts);
    auto used = std::ranges::count_if(components, [&names](const auto& nodes) {
      return std::ranges::find_first_of(names, nodes) != names.end();
    });
    return concat(" of ", used, " of its ", components.size(), " components");
  }

  expected<launch_environment> in_mpi(std::int64_t rank) {
    launch_environment result;
    result.engine = launch_engine::mpi;
    TROUPE_TRY(auto local, own_local_task());
    TROUPE_TRY(auto size, number_of("OMPI_COMM_WORLD_SIZE"));
    TROUPE_TRY(auto local_size, number_of("OMPI_COMM_WORLD_LOCAL_SIZE"));
    auto starter = text_of("OMPI_COMM_WORLD_RANK") ? "mpirun" : "PMIx";
    auto who = concat(starter, ": this is rank ", rank);
    if (size)
      who += concat(" of ", *size);
    auto is_one_host = size && local_size && *size == *local_size;
    if (is_one_host)
      result.engine = launch_engine::none;
    if (local > 0) {
      result.role = launch_role::extra_task;
      result.found = who + ", which ends: its host has a task already";
    } else if (rank > 0 || options_.node_agent) {
      result.role = launch_role::agent;
      result.found = who + ", an agent of rank 0";
    } else if (is_one_host) {
      result.host_index = 0;
      result.is_odd = true;
      result.found = who + ", and all ranks are on this host";
    } else {
      result.host_index = 0;
      result.found = who
                     + ", the driver; the first ranks of other hosts are "
                       "its agents";
    }
    return result;
  }

  expected<launch_environment> on_this_host() const {
    launch_environment result;
    if (options_.node_agent) {
      result.role = launch_role::agent;
      result.engine = launch_engine::ssh;
      result.found = "an agent, with the ticket on standard input";
      return result;
    }
    result.host_index = 0;
    TROUPE_TRY(auto index, number_of("JOB_COMPLETION_INDEX"));
    auto other = index ? concat("pod ", *index,
                                " of an Indexed Job, but TROUPE_DRIVER is not "
                                "set")
                       : other_launcher();
    result.is_odd = !other.empty();
    result.found =
      concat("this host alone: ",
             result.is_odd ? other
                           : "no hosts are given, and nothing of Slurm, MPI "
                             "or Kubernetes was found");
    return result;
  }

  /// What tells of processes or hosts that this run does not use; empty: there
  /// is nothing. Once on each host.
  std::string other_launcher() const {
    auto size = number_of("WORLD_SIZE");
    if (size && size->value_or(1) > 1 && text_of("RANK")
        && text_of("LOCAL_RANK").value_or("0") == "0")
      return concat("WORLD_SIZE=", **size,
                    " is of a launcher such as torchrun, each of whose "
                    "processes trains alone here: start one process instead, "
                    "with --hosts for several hosts");
    std::set<std::string> of_pbs;
    if (auto path = text_of("PBS_NODEFILE")) {
      std::ifstream in{std::string{*path}};
      for (std::string name; in >> name;)
        of_pbs.insert(name);
    }
    if (of_pbs.size() > 1)
      return concat("PBS_NODEFILE has ", of_pbs.size(),
                    " hosts: give them by --hosts to use them");
    std::istringstream of_lsf{
      std::string{text_of("LSB_MCPU_HOSTS").value_or("")}};
    auto hosts = 0; // Each with its number of slots.
    for (std::string name, slots; of_lsf >> name >> slots;)
      ++hosts;
    if (hosts > 1)
      return concat("LSB_MCPU_HOSTS has ", hosts,
                    " hosts: give them by --hosts to use them");
    return {};
  }

  environment_reader variables_;
  const launch_options& options_;
};

} // namespace

expected<launch_environment>
find_launch_environment(const environment_map& variables,
                        const launch_options& options) {
  return launch_finder{variables, options}.find();
}

expected<void> expect_pmix(const environment_map& variables) {
  return launch_finder{variables, {}}.expect_pmix();
}

} // namespace troupe::internal
