#include "troupe/runtime/process/control_groups.hpp"

#include <sstream>
#include <string>

namespace troupe::internal {

namespace {

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

/// A line of `mountinfo` is "31 23 0:28 /group /mount/point options ... - type
/// source options".
std::vector<group_mount> group_mounts(std::string_view controller,
                                      const fs::path& root) {
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
    if (is_v2 || (type == "cgroup" && has_item(options, controller)))
      result.push_back({is_v2, group, root / point});
  }
  return result;
}

/// As `control_group::below`. A line is "4:cpu,cpuacct:/group".
fs::path group_below(const group_mount& mount, std::string_view controller,
                     const fs::path& root) {
  fs::ifstream file{root / "proc/self/cgroup"};
  for (std::string line; std::getline(file, line);) {
    auto first = line.find(':');
    auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos)
      continue;
    auto kinds = line.substr(first + 1, second - first - 1);
    if (mount.is_v2 ? !kinds.empty() : !has_item(kinds, controller))
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

} // namespace

std::vector<control_group> own_control_groups(std::string_view controller,
                                              const fs::path& root) {
  std::vector<control_group> result;
  for (auto& mount : group_mounts(controller, root))
    result.push_back(
      {mount.is_v2, mount.path, group_below(mount, controller, root)});
  return result;
}

} // namespace troupe::internal
