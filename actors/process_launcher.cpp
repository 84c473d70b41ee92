#include "troupe/actors/process_launcher.hpp"

#include <algorithm>
#include <csignal>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/runtime/rank_logs.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

template <class Inspector>
bool inspect_bootstrap(Inspector& f, rank_bootstrap& x) {
  return f.apply(x.attempt) && f.apply(x.rank) && f.apply(x.token)
         && f.apply(x.run_path);
}

/// NCCL looks for its network by itself: it gets the interface of the address
/// of this host, unless the user has chosen one.
void choose_interface(start_ranks& x, const inheritance& inherited) {
  constexpr auto variable = "NCCL_SOCKET_IFNAME";
  auto& address = x.ranks.front().host_address;
  if (address.empty() || inherited.has(variable))
    return;
  if (auto own = find_own_address(address)) // "=": this name, not a prefix
    x.environment.emplace(variable, "=" + own->interface);
}

} // namespace

// -- the bootstrap data

std::string rank_bootstrap::to_bytes() const {
  caf::byte_buffer buffer;
  auto sink = serializer_to(buffer);
  auto copy = *this;
  inspect_bootstrap(sink, copy);
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

expected<rank_bootstrap> rank_bootstrap::from_bytes(const std::string& bytes) {
  rank_bootstrap result;
  auto source = deserializer_of(bytes);
  if (!inspect_bootstrap(source, result))
    return failure(ec::protocol, "a rank process got malformed bootstrap data");
  return result;
}

// -- the launcher

process_launcher::process_launcher(process_launcher_args args)
  : args_(std::move(args)) {}

void process_launcher::prepare(start_ranks& x) {
  if (x.ranks.empty())
    return;
  first_rank_ = x.ranks.front().rank;
  token_ = x.token;
  run_path_ = x.ranks.front().run_path;
  choose_interface(x, *args_.inherited);
  if (environment_ != x.environment) {
    environment_ = x.environment;
    note_secrets(environment_);
  }
  auto own = own_cores();
  if (!args_.cores.empty() && args_.is_pinned)
    own = own.part(args_.cores);
  else if (!args_.cores.empty())
    own.count = static_cast<int>(args_.cores.size());
  cpus_ = plan_cpus(std::move(own), static_cast<int>(x.ranks.size()),
                    args_.runs_at_once);
  for (auto& facts : x.ranks)
    facts.cores = cpus_.cores[local(facts.rank)];
}

void process_launcher::launch(std::uint64_t attempt, int rank, int segment,
                              const listener& tell) {
  auto request = request_for(attempt, rank, segment);
  if (!request) {
    tell(rank_launch_failed{attempt, rank, request.error()});
    return;
  }
  auto started = [attempt, rank, tell, pids = pids_](expected<pid_t> pid) {
    if (!pid) {
      tell(rank_launch_failed{attempt, rank, pid.error()});
      return;
    }
    {
      std::lock_guard guard{pids->mutex};
      auto& last = pids->of_rank[rank];
      if (last.attempt <= attempt)
        last = {attempt, *pid};
    }
    tell(rank_launched{attempt, rank, *pid});
  };
  auto ended = [attempt, rank, tell, pids = pids_](process_exit cause) {
    {
      std::lock_guard guard{pids->mutex};
      // A rank that was given up may end after its successor has started.
      auto& last = pids->of_rank[rank];
      if (last.attempt <= attempt)
        last = {attempt, 0};
    }
    tell(rank_exited{attempt, rank, std::move(cause)});
  };
  auto place = local(rank);
  ids_.resize(std::max(ids_.size(), place + 1));
  ids_[place] = args_.spawner->spawn(std::move(*request), std::move(started),
                                     std::move(ended));
}

expected<spawn_request> process_launcher::request_for(std::uint64_t attempt,
                                                      int rank, int segment) {
  spawn_request request;
  request.hidden.assign(secret_variables.begin(), secret_variables.end());
  request.hidden.insert(request.hidden.end(), tracker_addresses.begin(),
                        tracker_addresses.end());
  auto& program = *args_.inherited;
  request.removed = program.variables.removed;
  request.environment = program.variables.set;
  auto add = [&](const auto& more) {
    request.environment.insert(request.environment.end(), more.begin(),
                               more.end());
  };
  add(openmp_environment(cpus_,
                         [&](const char* name) { return program.has(name); }));
  add(environment_);
  request.umask = program.umask;
  if (program.folder) {
    TROUPE_TRY(request.folder, duplicate(program.folder.get()));
  }
  if (auto place = local(rank); place < cpus_.cores.size())
    request.cores = cpus_.cores[place];
  TROUPE_TRY_VOID(open_log(rank, request));
  TROUPE_TRY(auto memory, duplicate(segment));
  TROUPE_TRY(auto socket, args_.new_connection());
  request.descriptors.push_back(std::move(memory));
  request.descriptors.push_back(std::move(socket));
  rank_bootstrap own{attempt, rank, token_, run_path_};
  if (args_.ticket) {
    TROUPE_TRY(auto ticket, args_.ticket());
    own.token = ticket.token;
    own.run_path.clear();
    request.descriptors.push_back(std::move(ticket.file));
  }
  request.environment.emplace_back(attempt_variable, attempt_value(own.token));
  request.payload = own.to_bytes();
  return request;
}

expected<void> process_launcher::open_log(int rank, spawn_request& request) {
  auto path = concat(run_path_, '/', run_layout::logs, '/', log_name(rank));
  if (rank != 0 || !args_.console) {
    request.log_path = std::move(path);
    return {};
  }
  if (!tee_) {
    TROUPE_TRY(auto tee, log_tee::start(path, args_.console));
    tee_.emplace(std::move(tee));
  }
  TROUPE_TRY(request.output, tee_->writer());
  return {};
}

void process_launcher::kill(int rank) {
  if (auto place = local(rank); place < ids_.size())
    args_.spawner->kill(ids_[place], SIGKILL);
}

bool process_launcher::has_ended(int rank) {
  auto place = local(rank);
  return place < ids_.size() && args_.spawner->has_ended(ids_[place]);
}

std::optional<process_vitals> process_launcher::vitals(int rank) {
  auto pid = pid_of(rank);
  return pid != 0 ? vitals_of(pid) : std::nullopt;
}

bool process_launcher::is_stopped(int rank) {
  auto pid = pid_of(rank);
  return pid != 0 && internal::is_stopped(pid);
}

bool process_launcher::show_stacks(int rank) {
  auto pid = pid_of(rank);
  return pid != 0 && ask_for_stacks(pid);
}

pid_t process_launcher::pid_of(int rank) const {
  std::lock_guard guard{pids_->mutex};
  auto found = pids_->of_rank.find(rank);
  return found != pids_->of_rank.end() ? found->second.pid : 0;
}

} // namespace troupe::internal
