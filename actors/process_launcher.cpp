#include "troupe/actors/process_launcher.hpp"

#include <csignal>

#include "troupe/actors/rank_seed.hpp"
#include "troupe/runtime/process/secret_variables.hpp"
#include "troupe/runtime/process/stack_dump.hpp"

namespace troupe {

process_launcher::process_launcher(process_launcher_args args)
  : args_(std::move(args)), pids_(std::make_shared<std::vector<pid_t>>()),
    mutex_(std::make_shared<std::mutex>()) {}

void process_launcher::launch(std::uint64_t attempt, int rank, int segment,
                              const events& listener) {
  spawn_request request;
  request.payload = rank_seed{args_.socket, attempt, rank}.to_bytes();
  request.hidden.assign(secret_variables.begin(), secret_variables.end());
  request.hidden.insert(request.hidden.end(), tracker_addresses.begin(),
                        tracker_addresses.end());
  request.environment = openmp_environment(args_.cpus);
  request.environment.insert(request.environment.end(),
                             args_.environment.begin(),
                             args_.environment.end());
  auto local = static_cast<std::size_t>(rank);
  if (local < args_.cpus.cores.size())
    request.cores = args_.cpus.cores[local];
  if (auto ok = open_log(rank, request); !ok) {
    listener.failed(rank, ok.error());
    return;
  }
  auto memory = duplicate(segment);
  if (!memory) {
    listener.failed(rank, memory.error());
    return;
  }
  request.descriptors.push_back(std::move(*memory));
  auto lock = args_.ranks_lock();
  if (!lock) {
    listener.failed(rank, lock.error());
    return;
  }
  request.descriptors.push_back(std::move(*lock));
  {
    std::lock_guard guard{*mutex_};
    pids_->resize(std::max(pids_->size(), local + 1));
    (*pids_)[local] = 0;
  }
  auto started = [rank, local, listener, pids = pids_,
                  mutex = mutex_](expected<pid_t> pid) {
    if (!pid) {
      listener.failed(rank, pid.error());
      return;
    }
    {
      std::lock_guard guard{*mutex};
      (*pids)[local] = *pid;
    }
    listener.launched(rank, *pid);
  };
  auto ended = [rank, listener](process_exit cause) {
    listener.exited(rank, std::move(cause));
  };
  args_.spawner->spawn(std::move(request), std::move(started),
                       std::move(ended));
}

expected<void> process_launcher::open_log(int rank, spawn_request& request) {
  auto path = args_.log_path + "/rank_" + std::to_string(rank) + ".log";
  if (rank != 0 || !args_.console) {
    request.log_path = std::move(path);
    return {};
  }
  if (!tee_) {
    auto tee = log_tee::start(path, args_.console);
    if (!tee)
      return tl::unexpected<error>{std::move(tee.error())};
    tee_.emplace(std::move(*tee));
  }
  auto writer = tee_->writer();
  if (!writer)
    return tl::unexpected<error>{std::move(writer.error())};
  request.output = std::move(*writer);
  return {};
}

void process_launcher::kill(int rank) {
  if (auto pid = pid_of(rank))
    args_.spawner->kill(pid, SIGKILL);
}

std::optional<process_vitals> process_launcher::vitals(int rank) {
  auto pid = pid_of(rank);
  return pid != 0 ? vitals_of(pid) : std::nullopt;
}

bool process_launcher::show_stacks(int rank) {
  auto pid = pid_of(rank);
  return pid != 0 && ask_for_stacks(pid);
}

pid_t process_launcher::pid_of(int rank) const {
  std::lock_guard guard{*mutex_};
  auto local = static_cast<std::size_t>(rank);
  return local < pids_->size() ? (*pids_)[local] : 0;
}

} // namespace troupe
