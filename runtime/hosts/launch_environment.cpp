#include "troupe/runtime/hosts/launch_environment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <memory>
#include <utility>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <unistd.h>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Ids of steps from here on are Slurm's own: of the batch script, of the
/// interactive step.
constexpr std::int64_t first_special_step = 4'294'967'290;

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
  return concat(hosts.size(), hosts.size() == 1 ? " host (" : " hosts (",
                to_short_text(names_of(hosts)), ')');
}

/// Reads HOST:PORT; an address of IPv6 is in brackets. Returns the host.
expected<std::string> host_of_address(std::string_view text) {
  auto colon = text.rfind(':');
  auto host = text.substr(0, colon);
  int port = 0;
  if (colon != text.npos) {
    auto end = text.data() + text.size();
    auto read = std::from_chars(text.data() + colon + 1, end, port);
    if (read.ec != std::errc{} || read.ptr != end || port > 65'535)
      port = 0;
  }
  auto in_brackets = host.starts_with('[') && host.ends_with(']');
  if (in_brackets)
    host = host.substr(1, host.size() - 2);
  if (port < 1 || !is_host_name(host)
      || in_brackets != (host.find(':') != host.npos))
    return contradiction(concat("TROUPE_DRIVER=", cut_text(text, 300),
                                " is not HOST:PORT or [ADDRESS]:PORT"));
  return std::string{host};
}

/// Finds out what started the program.
class launch_finder {
public:
  launch_finder(const environment_map& variables, const launch_options& options)
    : variables_(variables), options_(options) {}

  expected<launch_environment> find() {
    auto has_ticket = text_of("TROUPE_TICKET").has_value();
    if (auto driver = text_of("TROUPE_DRIVER"))
      return by_ticket(std::string{*driver});
    if (has_ticket)
      return contradiction("TROUPE_TICKET names a folder with a ticket, but "
                           "TROUPE_DRIVER does not say where the driver "
                           "listens: set both or neither");
    if (!options_.hosts.empty() && !options_.node_agent)
      return over_ssh();
    if (text_of("SLURM_JOB_ID"))
      return in_slurm();
    TROUPE_TRY(auto rank, mpi_rank());
    if (rank)
      return in_mpi(*rank);
    return on_this_host();
  }

private:
  std::optional<std::string_view> text_of(std::string_view name) const {
    auto i = variables_.find(name);
    if (i == variables_.end() || i->second.empty())
      return std::nullopt;
    return i->second;
  }

  expected<std::optional<std::int64_t>> number_of(std::string_view name) const {
    auto text = text_of(name);
    if (!text)
      return std::nullopt;
    std::int64_t result = 0;
    auto end = text->data() + text->size();
    auto read = std::from_chars(text->data(), end, result);
    if (read.ec != std::errc{} || read.ptr != end || result < 0
        || result > UINT32_MAX)
      return contradiction(concat(name, '=', cut_text(*text, 100),
                                  " is not a number from 0 to ", UINT32_MAX));
    return result;
  }

  /// The value of the first variable that is set.
  std::optional<std::pair<std::string_view, std::string_view>>
  first_of(std::initializer_list<std::string_view> names) const {
    for (auto name : names)
      if (auto text = text_of(name))
        return std::pair{name, *text};
    return std::nullopt;
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

  // -- what the engines say about this task -----------------------------------

  /// Whether `srun` started this process, or one above it.
  expected<bool> is_slurm_task() const {
    if (!text_of("SLURM_JOB_ID"))
      return false;
    TROUPE_TRY(auto step, number_of("SLURM_STEP_ID"));
    return step && *step < first_special_step;
  }

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

  /// The number of this process among those that were started with it, and
  /// what it is called.
  struct task {
    std::int64_t number = 0;
    std::string name;
  };

  /// A rank of mpirun is also a rank if Slurm gave mpirun its hosts.
  expected<std::optional<task>> own_task() const {
    TROUPE_TRY(auto rank, mpi_rank());
    TROUPE_TRY(auto in_step, is_slurm_task());
    if (rank && (!in_step || text_of("OMPI_COMM_WORLD_RANK")))
      return task{*rank, concat("rank ", *rank, " of mpirun")};
    if (!in_step)
      return std::nullopt;
    TROUPE_TRY(auto number, number_of("SLURM_PROCID"));
    if (!number)
      return contradiction("SLURM_STEP_ID is set, but SLURM_PROCID is not: "
                           "parts of Slurm's variables are missing; pass all "
                           "of them, or unset SLURM_JOB_ID");
    TROUPE_TRY(auto count, number_of("SLURM_STEP_NUM_TASKS"));
    if (count && *number >= *count)
      return contradiction(
        concat("SLURM_PROCID=", *number,
               " is not below SLURM_STEP_NUM_TASKS=", *count));
    return task{*number, concat("task ", *number, " of srun")};
  }

  /// The number of this process among those of its host.
  expected<std::int64_t> own_local_task() const {
    TROUPE_TRY(auto rank, number_of("OMPI_COMM_WORLD_LOCAL_RANK"));
    if (rank)
      return *rank;
    TROUPE_TRY(auto in_step, is_slurm_task());
    TROUPE_TRY(auto number, number_of("SLURM_LOCALID"));
    return in_step ? number.value_or(0) : 0;
  }

  /// The id of the job of Slurm and its restarts; does nothing outside one.
  expected<void> name_job(launch_environment& result) const {
    auto id = text_of("SLURM_JOB_ID");
    if (!id)
      return {};
    auto array = text_of("SLURM_ARRAY_JOB_ID");
    auto element = text_of("SLURM_ARRAY_TASK_ID");
    if (array.has_value() != element.has_value())
      return contradiction("of SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID, "
                           "only one is set");
    // The last element has the id of the array.
    result.job = array ? concat(*array, '_', *element) : std::string{*id};
    TROUPE_TRY(auto restarts, number_of("SLURM_RESTART_COUNT"));
    result.restarts =
      static_cast<int>(std::min<std::int64_t>(restarts.value_or(0), INT_MAX));
    return {};
  }

  static std::string job_text(const launch_environment& x) {
    auto result = "Slurm job " + x.job;
    if (x.restarts > 0)
      result += concat(" (restart ", x.restarts, ')');
    return result;
  }

  // -- the engines ------------------------------------------------------------

  /// A pod, or a program that its user starts on each host.
  expected<launch_environment> by_ticket(std::string address) {
    TROUPE_TRY(auto host, host_of_address(address));
    if (!options_.hosts.empty() && !options_.node_agent)
      return contradiction("TROUPE_DRIVER says that agents come by "
                           "themselves, but hosts are given to start them "
                           "over ssh: use one of them");
    launch_environment result;
    result.engine = launch_engine::tickets;
    result.driver_address = std::move(address);
    result.ticket_folder =
      text_of("TROUPE_TICKET").value_or(default_ticket_folder);
    TROUPE_TRY_VOID(name_job(result));
    TROUPE_TRY(auto index, number_of("JOB_COMPLETION_INDEX"));
    if (index)
      result.host_index = static_cast<std::size_t>(*index);
    auto who = index ? concat("pod ", *index, " of an Indexed Job")
               : result.job.empty() ? std::string{"this host"}
                                    : job_text(result);
    TROUPE_TRY(auto local, own_local_task());
    auto is_own = std::ranges::any_of(options_.own_names, [&](const auto& own) {
      return may_be_same_host(own, host);
    });
    if (local > 0)
      result.role = launch_role::extra_task;
    else if (options_.node_agent || !is_own)
      result.role = launch_role::agent;
    if (result.role == launch_role::driver)
      result.found = concat("TROUPE_DRIVER=", result.driver_address,
                            " names this host: ", who,
                            " is the driver, and agents come by themselves");
    else if (result.role == launch_role::agent)
      result.found =
        concat("TROUPE_DRIVER=", result.driver_address, ": ", who,
               " is an agent, with the ticket in ", result.ticket_folder);
    else
      result.found = concat("TROUPE_DRIVER=", result.driver_address,
                            ": this is process ", local,
                            " of its host, which has an agent already; it "
                            "ends");
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
      return extra(std::move(result), "hosts are given", own->name);
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

  static launch_environment extra(launch_environment result,
                                  std::string_view why, std::string_view task) {
    result.role = launch_role::extra_task;
    result.found = concat(why, ": this is ", task,
                          ", which ends: number 0 starts the agents itself");
    return result;
  }

  expected<launch_environment> in_slurm() {
    launch_environment result;
    result.engine = launch_engine::slurm;
    TROUPE_TRY_VOID(name_job(result));
    TROUPE_TRY(auto own, own_task());
    // mpirun may have started its daemons in a step of its own.
    auto in_mpi = text_of("OMPI_COMM_WORLD_RANK").has_value();
    TROUPE_TRY(auto in_step, is_slurm_task());
    in_step = in_step && !in_mpi;
    TROUPE_TRY_VOID(read_nodes(result, in_step));
    TROUPE_TRY(result.host_index, slurm_index(result, in_step));
    TROUPE_TRY(auto gpus, number_of("SLURM_GPUS_ON_NODE"));
    if (gpus && *gpus <= INT_MAX)
      result.gpus = static_cast<int>(*gpus);
    if (options_.node_agent) {
      result.role = launch_role::agent;
      result.found =
        concat(job_text(result), ": this is an agent; ", place_text(result));
      return result;
    }
    if (own && own->number > 0) {
      auto why = job_text(result);
      return extra(std::move(result), why, own->name);
    }
    std::string who;
    if (own)
      who = own->name;
    else if (text_of("SLURM_STEP_ID"))
      who = "its interactive step";
    else
      who =
        text_of("SLURM_PROCID") ? "its batch script" : "a command of salloc";
    result.found = concat(job_text(result), ": ", count_text(result.hosts),
                          ", this is ", who);
    if (!result.host_index)
      result.found += ", on a host that is not one of them";
    return result;
  }

  /// The nodes of the step, or of the job, with their tasks and cores.
  expected<void> read_nodes(launch_environment& result, bool in_step) const {
    auto list = in_step
                  ? first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
                  : first_of({"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (!list)
      return contradiction(concat("SLURM_JOB_ID=", *text_of("SLURM_JOB_ID"),
                                  " is set, but SLURM_JOB_NODELIST is not: "
                                  "pass all of Slurm's variables, or unset "
                                  "SLURM_JOB_ID to use this host alone"));
    TROUPE_TRY(auto names, expand_host_list(list->second, list->first));
    auto is_of_step = list->first == "SLURM_STEP_NODELIST";
    auto count_name =
      is_of_step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES";
    TROUPE_TRY(auto count, number_of(count_name));
    if (count && static_cast<std::size_t>(*count) != names.size())
      return contradiction(concat(count_name, '=', *count, ", but ",
                                  list->first, '=', cut_text(list->second, 200),
                                  " names ", names.size()));
    auto tasks_name =
      is_of_step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
    TROUPE_TRY(auto tasks, counts_of(tasks_name, names.size(), list->first));
    for (std::size_t i = 0; i < names.size(); ++i)
      result.hosts.push_back(
        {names[i], tasks.empty() ? std::nullopt : std::optional{tasks[i]}});
    TROUPE_TRY(result.cores, cores_of(names));
    return {};
  }

  /// Empty if the variable is not set.
  expected<std::vector<int>> counts_of(std::string_view name, std::size_t size,
                                       std::string_view list) const {
    auto text = text_of(name);
    if (!text)
      return std::vector<int>{};
    TROUPE_TRY(auto result, expand_slurm_counts(*text, name));
    if (result.size() != size)
      return contradiction(concat(name, '=', cut_text(*text, 200), " is for ",
                                  result.size(), " nodes, but ", list,
                                  " names ", size));
    return result;
  }

  /// Slurm gives the cores of the nodes of the job, which may be more.
  expected<std::vector<int>>
  cores_of(const std::vector<std::string>& names) const {
    auto list = text_of("SLURM_JOB_NODELIST");
    if (!list)
      return std::vector<int>{};
    TROUPE_TRY(auto nodes, expand_host_list(*list, "SLURM_JOB_NODELIST"));
    TROUPE_TRY(auto cores, counts_of("SLURM_JOB_CPUS_PER_NODE", nodes.size(),
                                     "SLURM_JOB_NODELIST"));
    if (cores.empty())
      return cores;
    std::map<std::string_view, int> by_name;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      by_name.emplace(nodes[i], cores[i]);
    std::vector<int> result;
    for (const auto& name : names) {
      auto i = by_name.find(name);
      if (i == by_name.end())
        return contradiction(concat("node ", name,
                                    " is in SLURM_STEP_NODELIST "
                                    "but not in SLURM_JOB_NODELIST"));
      result.push_back(i->second);
    }
    return result;
  }

  expected<std::optional<std::size_t>> slurm_index(const launch_environment& x,
                                                   bool in_step) const {
    auto node = text_of("SLURMD_NODENAME");
    auto i = std::ranges::find_if(
      x.hosts, [&](const host_entry& host) { return host.name == node; });
    if (i != x.hosts.end())
      return static_cast<std::size_t>(i - x.hosts.begin());
    // Only a command of salloc may be elsewhere, or inherit another job's name.
    auto is_on_node = in_step || text_of("SLURM_PROCID");
    if (node && is_on_node)
      return contradiction(concat("SLURMD_NODENAME=", *node,
                                  " is not one of the nodes, ",
                                  to_short_text(names_of(x.hosts))));
    return own_index(x.hosts);
  }

  expected<launch_environment> in_mpi(std::int64_t rank) {
    launch_environment result;
    result.engine = launch_engine::mpi;
    result.job = text_of("PMIX_NAMESPACE").value_or("");
    TROUPE_TRY(auto local, own_local_task());
    TROUPE_TRY(auto size, number_of("OMPI_COMM_WORLD_SIZE"));
    TROUPE_TRY(auto local_size, number_of("OMPI_COMM_WORLD_LOCAL_SIZE"));
    auto starter = text_of("OMPI_COMM_WORLD_RANK") ? "mpirun" : "PMIx";
    auto who = concat(starter, ": this is rank ", rank);
    if (size)
      who += concat(" of ", *size);
    if (local > 0) {
      result.role = launch_role::extra_task;
      result.found = who + ", which ends: its host has a task already";
    } else if (rank > 0 || options_.node_agent) {
      result.role = launch_role::agent;
      result.found = who + ", an agent of rank 0";
    } else if (size && local_size && *size == *local_size) {
      result.engine = launch_engine::none;
      result.host_index = 0;
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
    result.found =
      index ? concat("this host alone: pod ", *index,
                     " of an Indexed Job, but TROUPE_DRIVER is not set")
            : "this host alone: no hosts are given, and nothing of Slurm, MPI "
              "or Kubernetes was found";
    return result;
  }

  const environment_map& variables_;
  const launch_options& options_;
};

} // namespace

expected<launch_environment>
find_launch_environment(const environment_map& variables,
                        const launch_options& options) {
  return launch_finder{variables, options}.find();
}

expected<std::vector<int>> expand_slurm_counts(std::string_view text,
                                               std::string_view name) {
  auto at = text.data();
  auto end = at + text.size();
  auto mistake = [&] {
    return contradiction(concat(name, '=', cut_text(text, 200),
                                ": at character ", at - text.data() + 1,
                                ": counts such as 4,1 or 1(x3) are expected, "
                                "for at most ",
                                max_hosts, " nodes"));
  };
  auto read_number = [&](int& x) {
    auto read = std::from_chars(at, end, x);
    if (read.ec != std::errc{} || x < 0)
      return false;
    at = read.ptr;
    return true;
  };
  std::vector<int> result;
  for (;;) {
    int count = 0;
    if (!read_number(count))
      return mistake();
    int times = 1;
    if (std::string_view{at, end}.starts_with("(x")) {
      at += 2;
      if (!read_number(times) || times < 1 || at == end || *at != ')')
        return mistake();
      ++at;
    }
    if (static_cast<std::size_t>(times) > max_hosts - result.size())
      return mistake();
    result.insert(result.end(), static_cast<std::size_t>(times), count);
    if (at == end)
      return result;
    if (*at != ',')
      return mistake();
    ++at;
  }
}

environment_map own_environment() {
  environment_map result;
  for (char** entry = environ; entry && *entry; ++entry) {
    std::string_view text{*entry};
    if (auto equals = text.find('='); equals != text.npos)
      result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::vector<std::string> own_host_names() {
  std::vector<std::string> result{"localhost"};
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0)
    result.emplace_back(name.data());
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    return result;
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{first, ::freeifaddrs};
  for (auto* x = first; x; x = x->ifa_next) {
    const void* address = nullptr;
    if (x->ifa_addr && x->ifa_addr->sa_family == AF_INET)
      address = &reinterpret_cast<sockaddr_in*>(x->ifa_addr)->sin_addr;
    else if (x->ifa_addr && x->ifa_addr->sa_family == AF_INET6)
      address = &reinterpret_cast<sockaddr_in6*>(x->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address
        && ::inet_ntop(x->ifa_addr->sa_family, address, text.data(),
                       text.size()))
      result.emplace_back(text.data());
  }
  return result;
}

} // namespace troupe::internal
