#include "troupe/runtime/process/cpu_plan.hpp"

#include <algorithm>

namespace troupe::internal {

cpu_plan plan_cpus(usable_cores available, int ranks, int runs) {
  cpu_plan plan;
  auto n = std::max(ranks, 1);
  plan.cores.resize(static_cast<std::size_t>(n));
  auto threads = available.count / n / std::max(runs, 1);
  plan.oversubscribed = threads < 1;
  if (plan.oversubscribed)
    return plan;
  plan.threads_per_rank = threads;
  if (runs > 1 || available.are_shared())
    return plan;
  std::ranges::sort(available.numbers);
  auto next = available.numbers.begin();
  for (int i = 0; i < n; ++i) {
    // The first ranks get the remainder.
    auto share = available.count / n + (i < available.count % n ? 1 : 0);
    plan.cores[static_cast<std::size_t>(i)].assign(next, next + share);
    next += share;
  }
  return plan;
}

std::vector<std::pair<std::string, std::string>>
openmp_environment(const cpu_plan& plan,
                   const std::function<bool(const char* name)>& is_set) {
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

} // namespace troupe::internal
