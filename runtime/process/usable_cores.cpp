#include "troupe/runtime/process/usable_cores.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <sched.h>

#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

std::vector<int> cores_of_thread() {
  // The kernel refuses a set smaller than its own, which may be larger than a
  // `cpu_set_t`.
  constexpr std::size_t most_words = 4096;
  std::vector<unsigned long> words;
  auto bytes = [&] { return words.size() * sizeof(unsigned long); };
  auto set = [&] { return reinterpret_cast<cpu_set_t*>(words.data()); };
  while (::sched_getaffinity(0, bytes(), set()) != 0) {
    if (errno != EINVAL || words.size() > most_words)
      return {};
    words.resize(2 * words.size() + 1);
  }
  std::vector<int> result;
  for (std::size_t core = 0; core < 8 * bytes(); ++core)
    if (CPU_ISSET_S(core, bytes(), set()))
      result.push_back(static_cast<int>(core));
  return result;
}

/// Where the control groups of one hierarchy are.
struct group_mount {
  bool is_v2 = false;
  std::string group; ///< The one that is mounted.
  fs::path path;
};

bool has_item(const std::string& list, std::string_view item) {
  std::istringstream items{list};
  for (std::string x; std::getline(items, x, ',');)
    if (x == item)
      return true;
  return false;
}

/// Those that may limit the time of CPUs. A line of `mountinfo` is "31 23 0:28
/// /group /mount/point options ... - type source options".
std::vector<group_mount> group_mounts(const fs::path& root) {
  std::vector<group_mount> result;
  fs::ifstream file{root / "proc/self/mountinfo"};
  for (std::string line; std::getline(file, line);) {
    auto dash = line.find(" - ");
    if (dash == line.npos)
      continue;
    std::istringstream front{line.substr(0, dash)}, back{line.substr(dash + 3)};
    std::string skipped, group, point, type, source, options;
    front >> skipped >> skipped >> skipped >> group >> point;
    back >> type >> source >> options;
    auto is_v2 = type == "cgroup2";
    if (is_v2 || (type == "cgroup" && has_item(options, "cpu")))
      result.push_back({is_v2, group, root / point});
  }
  return result;
}

/// The control group of this process in the hierarchy of *mount*, as seen from
/// its mount point: empty if it is that one, or not below it, as in a container
/// that sees the names of its host. A line is "4:cpu,cpuacct:/group".
fs::path group_below(const group_mount& mount, const fs::path& root) {
  fs::ifstream file{root / "proc/self/cgroup"};
  for (std::string line; std::getline(file, line);) {
    auto first = line.find(':');
    auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos)
      continue;
    auto kinds = line.substr(first + 1, second - first - 1);
    if (mount.is_v2 ? !kinds.empty() : !has_item(kinds, "cpu"))
      continue;
    std::string_view group = std::string_view{line}.substr(second + 1);
    auto mounted = mount.group == "/" ? std::string{} : mount.group;
    auto is_below = group.starts_with(mounted)
                    && group.substr(mounted.size()).starts_with('/')
                    && group.find("/..") == group.npos;
    return is_below ? std::string{group.substr(mounted.size() + 1)}
                    : std::string{};
  }
  return {};
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::string text;
  fs::ifstream in{file};
  in >> text;
  return whole_number<std::int64_t>(text);
}

/// The time that *group* gets in each period, and the period.
std::optional<std::pair<std::int64_t, std::int64_t>>
quota_of(const fs::path& group, bool is_v2) {
  std::optional<std::int64_t> quota, period;
  if (is_v2) {
    fs::ifstream in{group / "cpu.max"};
    std::string first, second;
    in >> first >> second;
    quota = whole_number<std::int64_t>(first); // "max": there is none.
    period = whole_number<std::int64_t>(second);
  } else {
    quota = number_in(group / "cpu.cfs_quota_us"); // -1: there is none.
    period = number_in(group / "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0)
    return std::nullopt;
  return std::pair{*quota, *period};
}

} // namespace

bool usable_cores::are_shared() const noexcept {
  return static_cast<std::size_t>(count) < numbers.size();
}

usable_cores usable_cores::part(std::vector<int> some) const {
  auto n = static_cast<int>(some.size());
  return {are_shared() ? numbers : std::move(some), n};
}

usable_cores own_cores(const fs::path& root) {
  usable_cores result;
  result.numbers = cores_of_thread();
  if (result.numbers.empty())
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency());
         ++i)
      result.numbers.push_back(static_cast<int>(i));
  auto seen = static_cast<std::int64_t>(result.numbers.size());
  result.count = static_cast<int>(std::min(seen, cores_of_quotas(root)));
  return result;
}

std::int64_t cores_of_quotas(const fs::path& root) {
  auto result = std::numeric_limits<std::int64_t>::max();
  for (auto& mount : group_mounts(root)) {
    auto below = group_below(mount, root);
    while (true) {
      if (auto x = quota_of(mount.path / below, mount.is_v2))
        result = std::min(result, (x->first - 1) / x->second + 1);
      if (below.empty())
        break;
      below = below.parent_path();
    }
  }
  return result;
}

} // namespace troupe::internal
