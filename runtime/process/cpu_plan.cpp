#include "troupe/runtime/process/cpu_plan.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include <sched.h>

namespace troupe::internal {

cpu_plan plan_cpus(std::vector<int> available, int ranks) {
  cpu_plan plan;
  auto n = static_cast<std::size_t>(std::max(ranks, 1));
  plan.cores.resize(n);
  std::sort(available.begin(), available.end());
  plan.oversubscribed = available.size() < n;
  if (plan.oversubscribed)
    return plan;
  plan.threads_per_rank = static_cast<int>(available.size() / n);
  auto next = available.begin();
  for (std::size_t i = 0; i < n; ++i) {
    // The first ranks get the remainder.
    auto share = available.size() / n + (i < available.size() % n ? 1 : 0);
    auto end = next + static_cast<std::ptrdiff_t>(share);
    plan.cores[i].assign(next, end);
    next = end;
  }
  return plan;
}

std::vector<std::pair<std::string, std::string>>
openmp_environment(const cpu_plan& plan, bool (*is_set)(const char* name)) {
  std::vector<std::pair<std::string, std::string>> result;
  auto add = [&](const char* name, std::string value) {
    if (!is_set(name))
      result.emplace_back(name, std::move(value));
  };
  add("OMP_NUM_THREADS", std::to_string(plan.threads_per_rank));
  if (plan.oversubscribed) {
    add("OMP_WAIT_POLICY", "passive");
    add("GOMP_SPINCOUNT", "0");
  }
  return result;
}

std::vector<std::pair<std::string, std::string>>
openmp_environment(const cpu_plan& plan) {
  return openmp_environment(
    plan, [](const char* name) { return std::getenv(name) != nullptr; });
}

std::vector<int> available_cores() {
  std::vector<int> result;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        result.push_back(core);
    return result;
  }
  // More cores than a cpu_set_t can name: count them.
  int n = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int core = 0; core < n; ++core)
    result.push_back(core);
  return result;
}

} // namespace troupe::internal
