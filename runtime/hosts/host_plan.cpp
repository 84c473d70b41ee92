#include "troupe/runtime/hosts/host_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// The slots of a host that says nothing about them.
constexpr auto any_number = std::numeric_limits<int>::max();

struct candidate {
  std::string name;
  int slots = 0;
  int ranks = 0;
};

/// The hosts of *found*, this one first. Slurm's slots are the tasks of a node,
/// of which Troupe needs one.
std::vector<candidate> candidates_of(const launch_environment& found) {
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

/// Deals *ranks* to *hosts*; whether there are enough slots for *fewest*.
bool deal(std::vector<candidate>& hosts, int ranks, int fewest) {
  std::vector<int> slots;
  for (auto& host : hosts)
    slots.push_back(host.slots);
  auto shares = deal_ranks(slots, ranks);
  for (std::size_t i = 0; i < hosts.size(); ++i)
    hosts[i].ranks = shares[i];
  return std::accumulate(shares.begin(), shares.end(), 0) >= fewest;
}

/// The same number of ranks on each host; whether each has the slots.
bool fill(std::vector<candidate>& hosts, int per_host) {
  for (auto& host : hosts)
    host.ranks = std::min(host.slots, per_host);
  return std::ranges::all_of(
    hosts, [per_host](const candidate& x) { return x.ranks == per_host; });
}

/// Hosts whose slots are not known get as many as the largest of them has ranks
/// in the largest world, which was dealt.
void give_slots(std::vector<candidate>& hosts) {
  auto each = 1;
  for (auto& host : hosts)
    if (host.slots == any_number)
      each = std::max(each, host.ranks);
  for (auto& host : hosts)
    if (host.slots == any_number)
      host.slots = each;
}

} // namespace

expected<host_plan> plan_hosts(const launch_environment& found,
                               worker_count num_workers, int workers_per_host,
                               int min_hosts) {
  auto hosts = candidates_of(found);
  auto count = static_cast<int>(hosts.size());
  auto most = workers_per_host > 0 ? workers_per_host * count : num_workers.max;
  auto fewest = workers_per_host > 0
                  ? workers_per_host * (min_hosts > 0 ? min_hosts : count)
                  : num_workers.min;
  if (workers_per_host > 0) {
    if (!fill(hosts, workers_per_host))
      return tl::unexpected{
        too_few_slots(found, workers_per_host, "workers_per_host")};
  } else if (!deal(hosts, most, fewest)) {
    return tl::unexpected{too_few_slots(found, fewest, "num_workers")};
  }
  give_slots(hosts);
  host_plan result;
  if (fewest == most)
    result.unused = static_cast<int>(
      std::erase_if(hosts, [](const candidate& x) { return x.ranks == 0; }));
  if (!found.host_index)
    hosts.insert(hosts.begin(), candidate{});
  for (auto& host : hosts) {
    auto slots =
      fewest < most && workers_per_host == 0 ? host.slots : host.ranks;
    slots = std::min(slots, shared_segment::max_ranks);
    result.hosts.push_back({std::move(host.name), 0, host.ranks, slots});
  }
  result.ranks.max = number_ranks(result.hosts);
  result.ranks.min = fewest < most ? fewest : result.ranks.max;
  if (result.hosts.size() <= 1)
    result.hosts.clear();
  else
    result.engine = found.engine;
  return result;
}

} // namespace troupe::internal
