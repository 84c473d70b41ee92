#include "processes.hpp"

#include <cstdio>
#include <stdexcept>

#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "troupe/runtime/process/cpu_plan.hpp"

namespace troupe::internal::bench {

namespace {

/// Returns the number of *processes* that did not exit with 0.
int wait_for(const std::vector<pid_t>& processes) {
  int failed = 0;
  for (auto pid : processes) {
    int status = 0;
    if (::waitpid(pid, &status, 0) != pid || status != 0)
      ++failed;
  }
  return failed;
}

[[noreturn]] void become_rank(const std::function<void(int)>& work, int rank,
                              const std::vector<int>& cores) {
  pin(cores);
  try {
    work(rank);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bare rank %d: %s\n", rank, e.what());
    ::_exit(1);
  }
  ::_exit(0);
}

} // namespace

void pin(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (auto core : cores)
    CPU_SET(core, &set);
  if (!cores.empty())
    ::sched_setaffinity(0, sizeof(set), &set);
}

void run_bare_ranks(int count, const std::function<void(int)>& work) {
  auto plan = plan_cpus(own_cores(), count);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < count; ++rank) {
    auto pid = ::fork();
    if (pid == 0)
      become_rank(work, rank, plan.cores[static_cast<std::size_t>(rank)]);
    if (pid < 0)
      throw std::runtime_error{"cannot fork a bare rank"};
    ranks.push_back(pid);
  }
  if (wait_for(ranks) > 0)
    throw std::runtime_error{"a bare rank failed"};
}

void run_self(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  std::string self = "/proc/self/exe";
  argv.push_back(self.data());
  for (auto& x : arguments)
    argv.push_back(x.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  if (::posix_spawn(&pid, self.c_str(), nullptr, nullptr, argv.data(), environ)
        != 0
      || wait_for({pid}) > 0)
    throw std::runtime_error{"this program failed as " + arguments.at(1)};
}

} // namespace troupe::internal::bench
