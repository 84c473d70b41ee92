#include "troupe/runtime/hosts/host_plan.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

struct candidate {
  std::string name;
  int slots = 0;
  int ranks = 0;
};

/// The hosts of *found*, this one first. Slurm's slots are the tasks of a node,
/// of which Troupe needs one.
std::vector<candidate> candidates_of(const launch_environment& found) {
  constexpr auto any_number = std::numeric_limits<int>::max();
  std::vector<candidate> result;
  for (const auto& host : found.hosts)
    result.push_back({host.name, found.engine == launch_engine::slurm
                                   ? any_number
                                   : host.slots.value_or(any_number)});
  if (found.host_index) {
    auto own = result.begin() + static_cast<std::ptrdiff_t>(*found.host_index);
    std::rotate(result.begin(), own, own + 1);
  }
  return result;
}

error too_few_slots(const launch_environment& found, int wanted,
                    std::string_view option) {
  std::vector<std::string> names;
  for (const auto& host : found.hosts)
    names.push_back(concat(host.name, " slots=", host.slots.value_or(1)));
  return {ec::invalid_config,
          concat("scaling.", option, " is ", wanted,
                 ", which is more than the hosts have slots: ",
                 to_short_text(names))};
}

/// One rank after the other, to each host in turn.
bool deal(std::vector<candidate>& hosts, int ranks) {
  while (ranks > 0) {
    auto before = ranks;
    for (auto& host : hosts)
      if (ranks > 0 && host.ranks < host.slots) {
        ++host.ranks;
        --ranks;
      }
    if (ranks == before)
      return false;
  }
  return true;
}

} // namespace

expected<host_plan> plan_hosts(const launch_environment& found, int num_workers,
                               int workers_per_host) {
  auto hosts = candidates_of(found);
  if (workers_per_host > 0) {
    for (auto& host : hosts)
      host.ranks = std::min(host.slots, workers_per_host);
    auto is_full = [&](const candidate& x) {
      return x.ranks == workers_per_host;
    };
    if (!std::ranges::all_of(hosts, is_full))
      return tl::unexpected{
        too_few_slots(found, workers_per_host, "workers_per_host")};
  } else if (!deal(hosts, num_workers)) {
    return tl::unexpected{too_few_slots(found, num_workers, "num_workers")};
  }
  std::erase_if(hosts, [](const candidate& x) { return x.ranks == 0; });
  if (!found.host_index)
    hosts.insert(hosts.begin(), candidate{});
  host_plan result;
  for (auto& host : hosts) {
    result.hosts.push_back({std::move(host.name), result.ranks, host.ranks});
    result.ranks += host.ranks;
  }
  if (result.hosts.size() <= 1)
    result.hosts.clear();
  else
    result.engine = found.engine;
  return result;
}

} // namespace troupe::internal
